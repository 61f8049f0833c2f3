"""The limits in our models and tables against the rules in the API descriptors of the cloud's own SDK."""

from __future__ import annotations

import re
from typing import Any, get_args

import pytest
from google.protobuf import message_factory
from nebius.api.nebius.compute import v1 as compute
from nebius.api.nebius.mk8s import v1 as mk8s

from config.nebius.cloud import Kubernetes, NebiusCloud
from config.nebius.platforms import nebius_catalogue
from config.sections.machines import MAX_GROUP_SIZE, BootDisk, DiskType, Machines
from config.sections.storage import Filesystem
from tests.unit.config.messages import POOL, only_complaint

LIMITS = nebius_catalogue().limits


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


def test_defaults_are_within_the_limits() -> None:
    cloud = NebiusCloud(project_id="project-a", region="eu-north1")
    for disk in (BootDisk(), cloud.system_nodes.boot_disk):
        assert disk.size == "128Gi"
    assert cloud.kubernetes.version in nebius_catalogue().drivers


def test_as_many_labels_and_taints_as_the_service_takes_are_too_many_with_our_own_among_them() -> None:
    labels = {f"key{number}": "x" for number in range(100)}
    assert only_complaint((f"{POOL}.labels", labels)).startswith(f"{POOL}.labels: ")
    taints = [{"key": f"key{number}", "value": "x"} for number in range(100)]
    assert only_complaint((f"{POOL}.taints", taints)).startswith(f"{POOL}.taints: ")
