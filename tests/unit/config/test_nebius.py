"""Stacks on Nebius: machines, names and limits, against the tables and the descriptors of the service's API."""

from __future__ import annotations

from typing import Any, get_args

import jsonschema
import pytest
import yaml
from google.protobuf import message_factory
from nebius.api.nebius.compute import v1 as compute
from nebius.api.nebius.mk8s import v1 as mk8s

from config import load_config
from config.schema import stack_file_schema
from config.sections.machines import MAX_GROUP_SIZE, DiskType, Machines
from config.sections.storage import Filesystem
from tests import stacks
from tests.stacks import ROOT
from tests.unit.config.messages import document


def test_project_subnet_region_and_one_pool_are_enough() -> None:
    config = load_config(stacks.nebius_minimum())
    resources = config.worker_nodes["default"].resources
    assert (resources.cpus, resources.memory, resources.gpus.count) == (126, "1518Gi", 8)


def test_the_schema_accepts_the_example_and_the_minimum_without_resources() -> None:
    schema = stack_file_schema()
    jsonschema.validate(yaml.safe_load((ROOT / "Pulumi.nebius.yaml").read_text(encoding="utf-8")), schema)
    jsonschema.validate(document(stacks.nebius_minimum()), schema)
    jsonschema.validate(document(stacks.existing()), schema)


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
        (mk8s.NodeTemplate, "max_pods", "int64 { lte: 256 gte: 8 }"),
        (mk8s.PublicEndpointSpec, "allowed_cidrs", 'max_items: 100 items { cel { id: "string.valid_ipv4_cidr"'),
        (mk8s.ControlPlaneSpec, "etcd_cluster_size", "int64 { in: 0 in: 1 in: 3 }"),
    ],
)
def test_our_limits_are_the_service_s(message: Any, name: str, rule: str) -> None:
    assert rule in rules(message, name)


def test_our_names_of_kinds_are_the_service_s() -> None:
    assert set(get_args(DiskType)) == names(mk8s.DiskSpec, "type")
    assert set(get_args(Filesystem.model_fields["type"].annotation)) == names(compute.FilesystemSpec, "type")
    policies = Machines.model_json_schema()["$defs"]["Reservation"]["properties"]["policy"]["enum"]
    assert set(policies) == names(mk8s.ReservationPolicy, "policy")
