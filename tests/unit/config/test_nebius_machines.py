"""Which machines a pool on Nebius may ask for, and what is said about those that do not exist or do not fit."""

from __future__ import annotations

from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config import load_config
from config.base import parse_bytes
from config.nebius.platforms import allocatable_memory_gib, nebius_catalogue
from tests.unit.config.messages import H100, POOL, complaints, minimum, only_complaint

CATALOGUE = nebius_catalogue()
CHOICES = [
    (platform.name, region, preset)
    for platform in CATALOGUE.platforms.values()
    if platform.arch == "amd64"
    for region in platform.regions
    for preset in platform.presets
]
"""Every machine that our images run on, in every region that has it."""


@given(st.sampled_from(CHOICES), st.integers(0, 5))
def test_every_machine_in_its_region_is_accepted_and_leaves_room_for_the_system(
    choice: tuple[str, str, str], size: int
) -> None:
    platform, region, preset = choice
    machine = CATALOGUE.platforms[platform].presets[preset]
    sections = minimum(("cloud.region", region))
    sections["worker_nodes"]["default"] = {"size": size, "platform": platform, "preset": preset}
    if machine.fabric and size > 1:
        sections["worker_nodes"]["default"]["gpu_cluster"] = {"infiniband_fabric": "fabric-1"}
    resources = load_config(sections).worker_nodes["default"].resources
    assert resources.cpus < machine.vcpus
    assert parse_bytes(resources.memory) < allocatable_memory_gib(machine) * 2**30
    assert resources.gpus.count == machine.gpus


@given(
    st.sampled_from([(platform, region) for platform in CATALOGUE.platforms for region in CATALOGUE.regions]),
)
def test_a_platform_is_accepted_exactly_where_it_is(choice: tuple[str, str]) -> None:
    name, region = choice
    platform = CATALOGUE.platforms[name]
    sections = minimum(("cloud.region", region))
    sections["worker_nodes"] = {"default": {"size": 0, "platform": name, "preset": next(iter(platform.presets))}}
    if region in platform.regions and platform.arch == "amd64":
        assert load_config(sections)
    else:
        (complaint,) = complaints(sections)
        assert complaint.startswith(f"{POOL}.platform: {name} ")


@pytest.mark.parametrize(("preset", "mib"), [(8, 1944), (16, 2763), (128, 9644), (256, 12266)])
def test_the_kubelet_s_share_of_a_gpu_machine_is_the_one_in_the_service_s_documentation(preset: int, mib: int) -> None:
    machine = CATALOGUE.platforms["gpu-h100-sxm"].presets[H100]
    kept = preset - allocatable_memory_gib(type(machine)(vcpus=16, memory_gib=preset, gpus=1, fabric=False))
    assert kept * 1024 == pytest.approx(mib, abs=1)


@given(st.sampled_from([choice for choice in CHOICES if choice[0] == "cpu-d3"]), st.integers(1, 300))
def test_a_worker_may_have_all_cpus_but_one(choice: tuple[str, str, str], cpus: int) -> None:
    _, region, preset = choice
    pool = {"size": 1, "platform": "cpu-d3", "preset": preset, "resources": {"cpus": cpus}}
    sections = minimum(("cloud.region", region), ("worker_nodes", {"default": pool}))
    if cpus < CATALOGUE.platforms["cpu-d3"].presets[preset].vcpus:
        assert load_config(sections).worker_nodes["default"].resources.cpus == cpus
    else:
        assert complaints(sections)[0].startswith(f"{POOL}.resources.cpus: ")


@given(st.integers(1, 5000), st.integers(1, 100))
def test_node_groups_must_have_room_for_the_pool(size: int, most: int) -> None:
    sections = minimum((f"{POOL}.autoscaling", {"max_size": most}))
    sections["worker_nodes"]["default"] |= {"size": size, "platform": "cpu-d3", "preset": "2vcpu-8gb"}
    del sections["worker_nodes"]["default"]["gpu_cluster"]
    found = complaints(sections) if size > ceil(size / 100) * most or size > 4980 else []
    assert any(line.startswith(f"{POOL}.autoscaling.max_size: ") for line in found) == (size > ceil(size / 100) * most)
    if not found:
        assert load_config(sections).worker_nodes["default"].size == size


@given(st.integers(64, 3 * 93 * 10))
def test_disks_that_come_in_steps_are_accepted_in_steps_only(size: int) -> None:
    sections = minimum((f"{POOL}.boot_disk", {"type": "NETWORK_SSD_NON_REPLICATED", "size": f"{size}Gi"}))
    if size % 93:
        assert "no multiple of 93Gi" in complaints(sections)[0]
    else:
        assert load_config(sections)


def test_a_taint_is_there_once_and_not_too_many_are() -> None:
    twice = [{"key": "a", "value": "x"}, {"key": "a", "value": "y"}]
    assert only_complaint((f"{POOL}.taints", twice)) == (
        f"{POOL}.taints: has 'a' with effect NoSchedule twice; Kubernetes allows it once"
    )
    assert load_config(minimum((f"{POOL}.taints", [twice[0], {**twice[1], "effect": "NoExecute"}])))
    many = [{"key": f"key{number}", "value": "x"} for number in range(65)]
    assert only_complaint((f"{POOL}.taints", many)).startswith(f"{POOL}.taints: ")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"drivers_preset": "cuda12.8"}, "'cuda12.8' is not a drivers preset for Kubernetes 1.36 (valid: cuda13.0)"),
        ({"version": "1.37"}, "must be set for Kubernetes 1.37, whose drivers this release does not know"),
        ({"gpu_stack": "operators", "drivers_preset": "cuda13.0"}, "is for preinstalled drivers, but cloud.gpu_stack"),
        ({"platform": "cpu-d3", "preset": "4vcpu-16gb", "drivers_preset": "cuda13.0"}, "cpu-d3 has none; remove it"),
    ],
)
def test_drivers_that_do_not_go_with_the_rest_are_refused(changes: dict[str, str], reason: str) -> None:
    places = {"version": "cloud.kubernetes.version", "gpu_stack": "cloud.gpu_stack"}
    complaint = only_complaint(
        (f"{POOL}.size", 1),
        (f"{POOL}.gpu_cluster", None),
        *((places.get(key, f"{POOL}.{key}"), value) for key, value in changes.items()),
    )
    assert complaint.startswith(f"{POOL}.drivers_preset: ")
    assert reason in complaint


@pytest.mark.parametrize("version", ["1.36", "1.37"])
def test_drivers_for_a_version_that_the_table_lacks_can_be_named(version: str) -> None:
    changes = (("cloud.kubernetes.version", version), (f"{POOL}.drivers_preset", "cuda13.0"))
    assert load_config(minimum(*changes)).worker_nodes["default"].drivers_preset == "cuda13.0"
