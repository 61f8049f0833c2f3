"""What a change of a stack file costs where the stack makes its cloud too."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from cli.change.effects import refused
from cli.change.engine_plan import EnginePlan, against_state
from cli.program.recording import Made
from components.clouds.nebius.immutable import ALLOCATION, CLUSTER, NODE_GROUP
from tests import stacks
from tests.graph.state import compare_files, stack_of, state_of
from tests.recordings import record
from tests.stacks import with_change

STATUS: dict[str, dict[str, Any]] = {
    CLUSTER: {
        "status": {
            "controlPlane": {
                "endpoints": {"publicEndpoint": "https://203.0.113.9", "privateEndpoint": "https://10.0.0.9"},
                "auth": {"clusterCaCertificate": "a certificate"},
            }
        }
    },
    ALLOCATION: {"status": {"details": {"allocatedCidr": "203.0.113.7/32"}}},
}


def applied(directory: Path, sections: dict[str, Any]) -> dict[str, Any]:
    """Pulumi's state after the stack was applied to a cloud, which gave everything ids of its own."""
    return dict(json.loads(_applied(json.dumps(stack_of(directory, sections, "old").sections))))


@cache
def _applied(sections: str) -> str:
    opened = json.loads(sections)
    made = {
        (item.type, item.name): Made(id=f"{item.name}-e00{number:x}", outputs=STATUS.get(item.type, {}))
        for number, item in enumerate(record(opened, stack="test"))
        if item.type.startswith("nebius:")
    }
    return json.dumps(state_of(record(opened, stack="test", made=made), STATUS))


def compare_state(directory: Path, before: dict[str, Any], after: dict[str, Any]) -> EnginePlan:
    return against_state(stack_of(directory, after), applied(directory, before))


WAYS = pytest.mark.parametrize("compared", [compare_files, compare_state])


def changed(path: str, value: Any) -> dict[str, Any]:
    return with_change(stacks.nebius(), path, value)


@WAYS
def test_the_same_stack_is_no_change_whatever_ids_the_cloud_gave(compared: Any, tmp_path: Path) -> None:
    assert not compared(tmp_path, stacks.nebius(), stacks.nebius()).changes


@WAYS
def test_a_file_system_can_be_made_anew_where_cloud_and_stack_allow_it(compared: Any, tmp_path: Path) -> None:
    released = with_change(changed("jail.filesystem.forbid_deletion", False), "cloud.allow_replacement", True)
    at_once = with_change(released, "jail.filesystem.type", "NETWORK_HDD")
    assert not refused(compared(tmp_path, stacks.nebius(), released).effects)
    second = compared(tmp_path, released, at_once)
    assert not refused(second.effects)
    assert [(item.kind, item.cost) for item in second.effects if item.action == "replace"] == [
        ("file system", "all users' files and the software in the jail are lost: the new one is empty")
    ]


def test_a_mount_that_leaves_is_refused_while_it_is_protected(tmp_path: Path) -> None:
    without = stacks.nebius()
    del without["mounts"]["data"]
    (effect,) = [
        item for item in compare_files(tmp_path, stacks.nebius(), without).effects if item.kind == "file system"
    ]
    assert "the files of mounts.data: it stays in the cloud as slurm-mount-data" in effect.cost
    assert effect.cost.endswith(", without being managed")
    assert effect.refused.startswith("it is protected")
    unprotected = {**stacks.nebius(), "protect": False}
    assert not refused(compare_files(tmp_path, unprotected, {**without, "protect": False}).effects)


@WAYS
def test_another_subnet_is_another_cluster_and_only_that_is_refused(compared: Any, tmp_path: Path) -> None:
    found = compared(tmp_path, stacks.nebius(), changed("cloud.subnet_id", "vpcsubnet-e00other"))
    replaced = {change.resource.name for change in found.changes if change.resource.type == NODE_GROUP}
    assert replaced == {"slurm-system", "slurm-controller", "slurm-login", "slurm-default-0", "slurm-cpu-0"}
    assert {change.action for change in found.changes if change.resource.type == NODE_GROUP} == {"replace"}
    those = {effect.kind for effect in refused(found.effects)}
    assert "Kubernetes cluster" in those
    assert "node group" not in those
