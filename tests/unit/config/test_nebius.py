"""Stacks on Nebius: machines, names and limits, against the tables and the descriptors of the service's API."""

from __future__ import annotations

import re
from math import ceil
from typing import Any, get_args

import jsonschema
import pytest
import yaml
from google.protobuf import message_factory
from hypothesis import given
from hypothesis import strategies as st
from nebius.api.nebius.compute import v1 as compute
from nebius.api.nebius.mk8s import v1 as mk8s

from config import load_config, load_stack_file
from config.base import parse_bytes
from config.nebius.cloud import Kubernetes
from config.nebius.needs import needs
from config.nebius.platforms import allocatable_memory_gib, nebius_catalogue, worker_resources
from config.schema import stack_file_schema
from config.sections.machines import MAX_GROUP_SIZE, DiskType, Machines
from config.sections.storage import Filesystem
from tests import stacks
from tests.stacks import ROOT, with_change
from tests.unit.config.messages import H100, POOL, complaints, document, minimum, only_complaint

CATALOGUE = nebius_catalogue()
LIMITS = CATALOGUE.limits
CHOICES = [
    (platform.name, region, preset)
    for platform in CATALOGUE.platforms.values()
    if platform.arch == "amd64"
    for region in platform.regions
    for preset in platform.presets
]
"""Every machine that our images run on, in every region that has it."""


def test_the_committed_example_is_valid_and_has_what_its_comments_say() -> None:
    config = load_stack_file(ROOT / "Pulumi.nebius.yaml")
    pool = config.worker_nodes["default"]
    assert (pool.size, pool.resources.gpus.count, pool.gpu_cluster is not None) == (2, 8, True)
    assert config.jail.size == "2Ti"
    assert config.protects_data


def test_project_subnet_region_and_one_pool_are_enough() -> None:
    config = load_config(stacks.nebius_minimum())
    resources = config.worker_nodes["default"].resources
    assert (resources.cpus, resources.memory, resources.gpus.count) == (126, "1518Gi", 8)


def test_part_of_the_resources_may_be_written_where_the_preset_gives_the_rest() -> None:
    sections = minimum((f"{POOL}.resources", {"cpu_request": "100"}))
    jsonschema.validate(document(sections), stack_file_schema())
    resources = load_config(sections).worker_nodes["default"].resources
    expected = worker_resources(CATALOGUE.platforms["gpu-h100-sxm"].presets[H100])
    assert (resources.cpu_request, resources.cpus, resources.memory) == ("100", expected["cpus"], expected["memory"])


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text("abc_-./: ä", max_size=8), inner, max_size=3)
        ),
        max_leaves=4,
    ),
    st.sampled_from(
        [
            *(f"cloud.{name}" for name in ("region", "name", "kubernetes", "system_nodes", "quotas", "ssh_keys")),
            *(f"{POOL}.{name}" for name in ("platform", "preset", "gpu_cluster", "boot_disk", "resources", "taints")),
            *("jail", "mounts", "controller", "login", "cluster"),
        ]
    ),
)
def test_any_value_anywhere_gives_a_configuration_or_readable_lines(value: Any, path: str) -> None:
    sections = minimum((path, value))
    try:
        assert load_config(sections)
    except ValueError:
        assert all(line and "\n" not in line for line in complaints(sections))


def test_the_schema_accepts_the_example_and_the_minimum_without_resources() -> None:
    schema = stack_file_schema()
    jsonschema.validate(yaml.safe_load((ROOT / "Pulumi.nebius.yaml").read_text(encoding="utf-8")), schema)
    jsonschema.validate(document(stacks.nebius_minimum()), schema)
    jsonschema.validate(document(stacks.existing()), schema)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("cloud", {"kind": "nebius", "region": "eu-north1"}),
        ("cloud", {"project_id": "project-a", "region": "eu-north1"}),
        ("cloud", {"kind": "aws"}),
        ("cloud.context", "prod"),
        (f"{POOL}.preset", None),
        ("worker_nodes", {"default": {"size": 1}}),
        ("worker_nodes", {"default": {"size": 1, "resources": {"cpus": 1}}}),
        (f"{POOL}.resources", {"cpu": 1}),
    ],
)
def test_the_schema_refuses_what_an_editor_can_know(path: str, value: Any) -> None:
    sections = minimum((path, value))
    if value is None:
        section = sections["worker_nodes"]["default"]
        del section[path.rsplit(".", 1)[1]]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document(sections), stack_file_schema())


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


@given(st.integers(1, 32), st.integers(1, 40), st.integers(0, 5000))
def test_names_in_the_cloud_are_never_too_long(prefix: int, pool: int, size: int) -> None:
    name, group = "p" * pool, max(0, ceil(size / 100) - 1)
    item = {"size": size, "platform": "cpu-d3", "preset": "2vcpu-8gb"}
    sections = minimum(("cloud.name", "n" * prefix), ("worker_nodes", {name: item}))
    if len("n" * prefix + f"-{name}-{group}") > 63:
        assert any(line.startswith(f"worker_nodes.{name}: makes the node group ") for line in complaints(sections))
    elif size < 4900:
        assert load_config(sections)


def test_more_ssh_keys_than_a_machine_s_start_up_data_can_hold_are_refused() -> None:
    assert only_complaint(("cloud.ssh_keys", [stacks.ALICE_KEY] * 400)).startswith("cloud.ssh_keys: ")
    assert only_complaint(("cloud.ssh_keys", ["hello"])).startswith("cloud.ssh_keys.0: 'hello' is not an SSH public")


@given(st.integers(0, 300), st.sampled_from([0, 1, 7, "10%"]), st.integers(0, 2))
def test_quotas_count_what_the_preview_counts(size: int, surge: int | str, least: int) -> None:
    pool = {"update_strategy": {"max_surge": surge, "max_unavailable": 1}, "autoscaling": {"min_size": least}}
    sections = minimum()
    sections["worker_nodes"]["default"] |= {**pool, "size": size}
    counted = sum((node.count + node.surge) * node.size.gpus for node in needs(load_config(sections)).nodes)
    quota = with_change(sections, "cloud.quotas", {"gpus": {"gpu-h100-sxm": counted}})
    assert load_config(quota)
    if counted:
        quota = with_change(sections, "cloud.quotas", {"gpus": {"gpu-h100-sxm": counted - 1}})
        assert f"takes {counted:,} GPUs" in complaints(quota)[0]


def field(message: Any, name: str) -> Any:
    """The descriptor of a field of one of the SDK's messages."""
    return message.get_descriptor().provider_descriptor.fields_by_name[name]


def rules(message: Any, name: str) -> str:
    """What the service demands of a field, as text with single spaces."""
    descriptor = field(message, name)
    options = descriptor.GetOptions()
    pool = descriptor.containing_type.file.pool
    known = message_factory.GetMessageClass(pool.FindMessageTypeByName(options.DESCRIPTOR.full_name))
    return " ".join(str(known.FromString(options.SerializeToString())).split())


def names(message: Any, name: str) -> set[str]:
    """The values of a field that has names for them, but for the one that stands for none."""
    return {value.name for value in field(message, name).enum_type.values if not value.name.endswith("UNSPECIFIED")}


@pytest.mark.parametrize(
    ("message", "name", "rule"),
    [
        (mk8s.NodeGroupAutoscalingSpec, "max_node_count", f"int64 {{ lte: {MAX_GROUP_SIZE} gte: 0 }}"),
        (mk8s.NodeTemplate, "taints", "max_items: 100 "),
        (mk8s.NodeMetadataTemplate, "labels", "max_pairs: 100 "),
        (mk8s.NodeTemplate, "max_pods", "int64 { lte: 256 gte: 8 }"),
        (mk8s.NodeTaint, "value", "required: true"),
        (mk8s.DiskSpec, "size_gibibytes", "int64 { gte: 64 }"),
        (mk8s.CreateNodeGroupRequest, "metadata", f"size(this.name) <= {LIMITS['name']} "),
        (mk8s.CreateClusterRequest, "metadata", f"size(this.name) <= {LIMITS['name']} "),
        (mk8s.PublicEndpointSpec, "allowed_cidrs", 'max_items: 100 items { cel { id: "string.valid_ipv4_cidr"'),
        (mk8s.KubeNetworkSpec, "service_cidrs", 'CIDR block or prefix length from \\"/12\\" to \\"/28\\"'),
        (mk8s.ControlPlaneSpec, "etcd_cluster_size", "int64 { in: 0 in: 1 in: 3 }"),
        (compute.AttachedFilesystemSpec, "mount_tag", f"max_len: {LIMITS['mount_tag']} "),
        (compute.InstanceSpec, "cloud_init_user_data", f"max_len: {LIMITS['start_up_data']} "),
    ],
)
def test_our_limits_are_the_service_s(message: Any, name: str, rule: str) -> None:
    assert rule in rules(message, name)


def test_our_names_of_kinds_are_the_service_s() -> None:
    assert set(get_args(DiskType)) == names(mk8s.DiskSpec, "type")
    assert set(get_args(Filesystem.model_fields["type"].annotation)) == names(compute.FilesystemSpec, "type")
    policies = Machines.model_json_schema()["$defs"]["Reservation"]["properties"]["policy"]["enum"]
    assert set(policies) == names(mk8s.ReservationPolicy, "policy")


@pytest.mark.parametrize("version", ["1.35", "1.36", "1.99"])
@pytest.mark.parametrize("suffix", ["", "-nebius-node.1", "-nebius-node.75"])
def test_versions_that_we_accept_are_such_that_the_service_accepts(version: str, suffix: str) -> None:
    kubernetes = Kubernetes(version=version, node_version=version + suffix)
    for message, name, value in (
        (mk8s.ControlPlaneSpec, "version", kubernetes.version),
        (mk8s.NodeGroupSpec, "version", kubernetes.node_version),
    ):
        (pattern,) = re.findall(r'pattern: "(.*?)"', rules(message, name))
        assert re.search(f"^(?:{pattern})$".replace("\\\\", "\\"), str(value))


def test_as_many_labels_and_taints_as_the_service_takes_are_too_many_with_our_own_among_them() -> None:
    labels = {f"key{number}": "x" for number in range(100)}
    assert only_complaint((f"{POOL}.labels", labels)).startswith(f"{POOL}.labels: ")
    taints = [{"key": f"key{number}", "value": "x"} for number in range(100)]
    assert only_complaint((f"{POOL}.taints", taints)).startswith(f"{POOL}.taints: ")
