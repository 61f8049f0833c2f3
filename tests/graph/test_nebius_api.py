"""The checker of Nebius resources finds what the service would refuse; the table of what can never change is whole."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from cli.program.values import UNKNOWN
from components.clouds.nebius import immutable
from components.clouds.nebius.immutable import CLUSTER, FILESYSTEM, IMMUTABLE, NODE_GROUP, SUBNET
from tests.graph import nebius_api

GOOD: dict[str, dict[str, Any]] = {
    CLUSTER: {
        "name": "slurm",
        "parentId": "project-e00example",
        "controlPlane": {
            "subnetId": "vpcsubnet-e00example",
            "version": "1.36",
            "etcdClusterSize": 3,
            "endpoints": {"publicEndpoint": {"allowedCidrs": ["203.0.113.0/24"]}},
        },
        "kubeNetwork": {"serviceCidrs": ["10.96.0.0/16"]},
    },
    NODE_GROUP: {
        "name": "slurm-default-0",
        "parentId": "mk8scluster-e00example",
        "version": "1.36-nebius-node.75",
        "autoscaling": {"minNodeCount": 1, "maxNodeCount": 100},
        "strategy": {"maxSurge": {"count": 0}, "maxUnavailable": {"percent": 25}, "drainTimeout": "600s"},
        "template": {
            "metadata": {"labels": {"slurmstack/role": "worker"}},
            "resources": {"platform": "gpu-h100-sxm", "preset": "8gpu-128vcpu-1600gb"},
            "bootDisk": {"sizeGibibytes": 128, "type": "NETWORK_SSD"},
            "taints": [{"key": "nvidia.com/gpu", "value": "8", "effect": "NO_SCHEDULE"}],
            "networkInterfaces": [{"subnetId": "vpcsubnet-e00example"}],
            "maxPods": 32,
            "gpuCluster": {"id": "computegpucluster-e00example"},
        },
    },
    FILESYSTEM: {"name": "slurm-jail", "parentId": "project-e00example", "type": "NETWORK_SSD", "sizeGibibytes": 20},
    SUBNET: {"name": "slurm-subnet", "parentId": "project-e00example", "networkId": "vpcnetwork-e00example"},
}
"""Inputs that the service takes."""

NETWORK_TAINT = {"key": "a", "value": "b", "effect": "NO_SCHEDULE"}


def _with(type_: str, path: str, value: Any) -> dict[str, Any]:
    inputs = copy.deepcopy(GOOD[type_])
    *parents, last = path.split(".")
    at: Any = inputs
    for part in parents:
        at = at[int(part)] if part.isdigit() else at.setdefault(part, {})
    if value is None:
        del at[last]
    else:
        at[last] = value
    return inputs


@pytest.mark.parametrize("type_", GOOD)
def test_what_the_service_takes_passes(type_: str) -> None:
    assert nebius_api.violations(type_, GOOD[type_], {}) == []


@pytest.mark.parametrize(
    ("type_", "path", "value", "expected"),
    [
        (CLUSTER, "controlPlane.etcdSize", 3, 'no field named "etcdSize"'),
        (FILESYSTEM, "type", "NETWORK_TAPE", "NETWORK_TAPE"),
        (FILESYSTEM, "type", None, "spec.type: is required"),
        (FILESYSTEM, "sizeBytes", 2**30, "oneof"),
        (NODE_GROUP, "template.maxPods", 7, "gte 8"),
        (NODE_GROUP, "version", "1.36-nebius-node.0", "breaks pattern"),
        (NODE_GROUP, "template.taints", [NETWORK_TAINT] * 101, "max_items 100"),
        (CLUSTER, "name", "a.b", "1 to 63 characters"),
        (CLUSTER, "kubeNetwork.serviceCidrs", ["10.0.0.0/8"], "/12"),
        (NODE_GROUP, "template.gpuCluster.id", "vpcsubnet-a", "no id of computegpucluster"),
    ],
)
def test_what_the_service_refuses_is_found(type_: str, path: str, value: Any, expected: str) -> None:
    assert expected in "\n".join(nebius_api.violations(type_, _with(type_, path, value), {}))


def test_a_stand_in_for_an_id_is_judged_by_what_it_stands_for() -> None:
    inputs = _with(NODE_GROUP, "parentId", "slurm-id")
    assert nebius_api.violations(NODE_GROUP, inputs, {"slurm-id": {"mk8scluster"}}) == []
    (fault,) = nebius_api.violations(NODE_GROUP, inputs, {"slurm-id": {"vpcsubnet"}})
    assert "no id of mk8scluster" in fault


def test_a_value_that_is_not_known_yet_is_not_taken_for_a_wrong_one() -> None:
    inputs = _with(NODE_GROUP, "template.maxPods", UNKNOWN)
    assert nebius_api.violations(NODE_GROUP, inputs, {}) == []


def test_a_rule_that_the_checker_does_not_know_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nebius_api, "_LIMITS", {})
    with pytest.raises(NotImplementedError, match="a limit"):
        nebius_api.violations(NODE_GROUP, GOOD[NODE_GROUP], {})


# The table of what can never change


@pytest.mark.parametrize("type_", nebius_api.REQUESTS)
def test_what_the_api_marks_as_immutable_is_in_the_table(type_: str) -> None:
    assert nebius_api.immutable_paths(type_) <= set(IMMUTABLE[type_])


@pytest.mark.parametrize("type_", IMMUTABLE)
def test_the_table_names_inputs_that_there_are(type_: str) -> None:
    known = {"parentId", "name", "labels", *_paths(nebius_api.request_class(type_).DESCRIPTOR.fields_by_name["spec"])}
    assert set(IMMUTABLE[type_]) <= known


def test_the_table_has_every_type_of_ours() -> None:
    tokens = {value for name, value in vars(immutable).items() if name.isupper() and isinstance(value, str)}
    assert tokens == set(IMMUTABLE) == set(nebius_api.REQUESTS)


def _paths(field: Any, prefix: str = "") -> Iterator[str]:
    for part in field.message_type.fields:
        yield f"{prefix}{part.json_name}"
        if part.message_type is not None and prefix.count(".") < 2:
            yield from _paths(part, f"{prefix}{part.json_name}.")
