"""Which machines a pool on Nebius may ask for, and what is said about those that do not exist or do not fit."""

from __future__ import annotations

from math import ceil
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config import load_config
from config.base import parse_bytes
from config.nebius.platforms import allocatable_memory_gib, nebius_catalogue
from tests import stacks
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


@pytest.mark.parametrize(
    ("platform", "guess"), [("gpu-h100-smx", "gpu-h100-sxm"), ("GPU-H200-SXM", "gpu-h200-sxm"), ("cpu-d33", "cpu-d3")]
)
def test_a_wrong_platform_names_the_nearest_one(platform: str, guess: str) -> None:
    complaint = only_complaint((f"{POOL}.platform", platform))
    assert complaint.startswith(f"{POOL}.platform: {platform!r} is not a platform (valid: cpu-d3, ")
    assert complaint.endswith(f"did you mean {guess!r}?")


def test_a_wrong_preset_names_the_nearest_one_and_those_of_the_platform() -> None:
    assert only_complaint((f"{POOL}.preset", "8gpu-128vcpu-1500gb")) == (
        f"{POOL}.preset: '8gpu-128vcpu-1500gb' is not a preset of gpu-h100-sxm (valid: 1gpu-16vcpu-200gb, {H100}); "
        f"did you mean {H100!r}?"
    )


def test_an_unknown_region_names_the_nearest_one() -> None:
    complaint = only_complaint(("cloud.region", "eu-north-1"))
    assert complaint.startswith("cloud.region: 'eu-north-1' is not a region ")
    assert complaint.endswith("did you mean 'eu-north1'?")


def test_a_platform_that_the_region_lacks_says_where_it_is_and_what_the_region_has() -> None:
    assert only_complaint(("cloud.region", "eu-west1")) == (
        f"{POOL}.platform: gpu-h100-sxm is not in eu-west1, but in eu-north1; eu-west1 has gpu-h200-sxm"
    )


@pytest.mark.parametrize("preset", ["4gpu-112vcpu-800gb", "nonsense"])
def test_machines_that_our_images_cannot_run_on_give_one_message(preset: str) -> None:
    assert only_complaint((f"{POOL}.platform", "gpu-gb300"), (f"{POOL}.preset", preset)) == (
        f"{POOL}.platform: gpu-gb300 has arm64 machines, and our images are built for amd64 only"
    )


def test_of_a_pool_whose_preset_is_unknown_nothing_is_said_about_its_cpus() -> None:
    resources = {"cpu_request": "100"}
    complaint = only_complaint((f"{POOL}.preset", "8gpu"), (f"{POOL}.resources", resources))
    assert complaint.startswith(f"{POOL}.preset: '8gpu' is not a preset of gpu-h100-sxm")


@pytest.mark.parametrize("field", ["platform", "preset"])
def test_a_pool_names_its_machine(field: str) -> None:
    sections = stacks.nebius_minimum()
    del sections["worker_nodes"]["default"][field]
    assert complaints(sections) == [f"{POOL}.{field}: is required but not set: this cloud makes the machines"]


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


def test_several_gpu_machines_need_a_fabric() -> None:
    sections = stacks.nebius_minimum()
    del sections["worker_nodes"]["default"]["gpu_cluster"]
    (complaint,) = complaints(sections)
    assert complaint.startswith(f"{POOL}.gpu_cluster: is required but not set: 2 nodes of {H100} need an InfiniBand ")
    sections["worker_nodes"]["default"]["size"] = 1
    assert load_config(sections)


@pytest.mark.parametrize(
    ("platform", "preset", "reason"),
    [
        ("cpu-d3", "4vcpu-16gb", "is only for machines with GPUs, and cpu-d3 has none; remove it"),
        (
            "gpu-h100-sxm",
            "1gpu-16vcpu-200gb",
            f"machines of 1gpu-16vcpu-200gb cannot be in a GPU cluster; presets that can: {H100}. Or remove it",
        ),
    ],
)
@pytest.mark.parametrize("cluster", [{"infiniband_fabric": "fabric-6"}, {"id": "computegpucluster-e00a"}])
def test_a_gpu_cluster_of_machines_that_cannot_be_in_one_is_refused(
    platform: str, preset: str, reason: str, cluster: dict[str, str]
) -> None:
    changes = ((f"{POOL}.platform", platform), (f"{POOL}.preset", preset), (f"{POOL}.gpu_cluster", cluster))
    assert only_complaint(*changes) == f"{POOL}.gpu_cluster: {reason}"


@pytest.mark.parametrize("cluster", [{"infiniband_fabric": "fabric-6"}, {"id": "computegpucluster-e00a"}])
def test_a_fabric_has_machines_of_one_platform(cluster: dict[str, str]) -> None:
    other = {"size": 2, "platform": "gpu-h200-sxm", "preset": H100, "gpu_cluster": cluster}
    changes = ((f"{POOL}.gpu_cluster", cluster), ("worker_nodes.other", other))
    complaint = only_complaint(*changes)
    assert complaint.startswith(f"worker_nodes.other.gpu_cluster: {next(iter(cluster.values()))} is the fabric of ")
    assert "pool 'default' with gpu-h100-sxm" in complaint
    assert load_config(minimum(*changes, ("worker_nodes.other.platform", "gpu-h100-sxm")))


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("cpus", 129, f"129 is more than the 128 of {H100}"),
        ("cpus", 128, "leaves less than one CPU to the machine itself"),
        ("cpu_request", "127500m", "leaves less than one CPU to the machine itself"),
        ("memory", "1600Gi", f"1600Gi is more than the 1561Gi that {H100} has for pods"),
        ("gpus", 16, f"16 is not the 8 of {H100}, which one worker fills"),
        ("gpus", 4, f"4 is not the 8 of {H100}, which one worker fills"),
    ],
)
def test_resources_that_the_machine_does_not_have_are_refused(field: str, value: Any, reason: str) -> None:
    complaint = only_complaint((f"{POOL}.resources.{field}", value))
    assert complaint.startswith(f"{POOL}.resources.{field}: ")
    assert reason in complaint


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


@pytest.mark.parametrize("value", [101, 0, -1, "5", 1.5, True])
def test_a_node_group_has_at_most_a_hundred_nodes(value: Any) -> None:
    assert only_complaint((f"{POOL}.autoscaling", {"max_size": value})).startswith(f"{POOL}.autoscaling.max_size: ")


@pytest.mark.parametrize("value", [101, -1, 1.5, True, "5", "all"])
def test_what_is_no_number_of_machines_and_no_percentage_is_told_once(value: Any) -> None:
    complaint = only_complaint((f"{POOL}.update_strategy", {"max_surge": value}))
    assert complaint.startswith(f"{POOL}.update_strategy.max_surge: ")
    assert "neither a number of machines from 0 to 100 nor a percentage such as 25%" in complaint


def test_a_cluster_is_not_larger_than_kubernetes_is_tested_to() -> None:
    pool = {"size": 5000, "platform": "cpu-d3", "preset": "2vcpu-8gb"}
    complaint = only_complaint(("worker_nodes", {"a": pool}))
    assert complaint == (
        "worker_nodes: 5,006 machines with those of our own roles; Kubernetes is tested to 5,000 in one cluster"
    )


@pytest.mark.parametrize(
    ("disk", "part", "reason"),
    [
        ({"size": "63Gi"}, "size", "is too small for a boot disk; 64Gi at least"),
        ({"size": "100G"}, "size", "100G is no whole number of GiB, in which the cloud counts; 94Gi?"),
        ({"size": "257Ti"}, "size", "257Ti is more than a disk can have; 262144Gi at most"),
        ({"type": "NETWORK_SSD_IO_M3", "size": "128Gi"}, "", "no multiple of 93Gi, which NETWORK_SSD_IO_M3 comes in"),
        ({"block_size": "2Ki"}, "block_size", "is not a block size: a power of two from 4Ki to 128Ki"),
        ({"block_size": "256Ki"}, "block_size", "is not a block size: a power of two from 4Ki to 128Ki"),
        ({"block_size": "5Ki"}, "block_size", "is not a block size: a power of two from 4Ki to 128Ki"),
        ({"type": "NETWORK_SDD"}, "type", "did you mean 'NETWORK_SSD'?"),
    ],
)
@pytest.mark.parametrize("where", [POOL, "cloud.system_nodes", "cloud.login_nodes"])
def test_a_boot_disk_out_of_range_is_refused(where: str, disk: dict[str, str], part: str, reason: str) -> None:
    complaint = only_complaint((f"{where}.boot_disk", disk))
    assert complaint.startswith(f"{where}.boot_disk{part and '.'}{part}: ")
    assert reason in complaint


@given(st.integers(64, 3 * 93 * 10))
def test_disks_that_come_in_steps_are_accepted_in_steps_only(size: int) -> None:
    sections = minimum((f"{POOL}.boot_disk", {"type": "NETWORK_SSD_NON_REPLICATED", "size": f"{size}Gi"}))
    if size % 93:
        assert "no multiple of 93Gi" in complaints(sections)[0]
    else:
        assert load_config(sections)


@pytest.mark.parametrize(
    "labels",
    [
        {"": "x"},
        {"-a": "x"},
        {"a" * 64: "x"},
        {"a/b/c": "x"},
        {"Prefix/a": "x"},
        {"a": "x" * 64},
        {"a": "x y"},
        {"a": "-"},
        {"kubernetes.io/arch": "amd64"},
        {"node.k8s.io/x": "y"},
        {"slurmstack/pool": "other"},
        {f"key{number}": "x" for number in range(65)},
    ],
)
def test_a_label_that_the_service_refuses_or_ignores_is_refused(labels: dict[str, str]) -> None:
    assert only_complaint((f"{POOL}.labels", labels)).startswith(f"{POOL}.labels: ")


@pytest.mark.parametrize(
    "taint",
    [
        {"key": "a", "value": ""},
        {"key": "a"},
        {"key": "", "value": "x"},
        {"key": "a", "value": "x" * 64},
        {"key": "a", "value": "x", "effect": "NoScheduled"},
        {"key": "nvidia.com/gpu", "value": "8"},
        {"key": "slurmstack/role", "value": "x"},
    ],
)
def test_a_taint_that_the_service_refuses_is_refused(taint: dict[str, str]) -> None:
    assert only_complaint((f"{POOL}.taints", [taint])).startswith(f"{POOL}.taints")


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


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"preemptible": True}, "is not possible with preemptible: true"),
        ({"platform": "cpu-d3", "preset": "4vcpu-16gb", "gpu_cluster": None}, "cpu-d3 has none; remove it"),
        ({"reservation": {"policy": "FORBID", "ids": ["capacityblockgroup-a"]}}, "policy FORBID never uses one"),
    ],
)
def test_a_reservation_is_for_gpu_machines_that_stay(changes: dict[str, Any], reason: str) -> None:
    reserved = (f"{POOL}.reservation", {"policy": "AUTO", "ids": ["capacityblockgroup-a"]})
    complaint = only_complaint(reserved, *((f"{POOL}.{key}", value) for key, value in changes.items()))
    assert complaint.startswith(f"{POOL}.reservation: ")
    assert reason in complaint
