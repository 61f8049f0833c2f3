"""Which changes cost somebody something, and which are refused, on hand-made resources of the cloud."""

from __future__ import annotations

import re
from typing import Any

import pytest

from cli.change.change import compare, immutable_properties
from cli.change.effects import Effect, effects
from cli.program.values import UNKNOWN, Resource, Secret
from components.clouds.nebius.immutable import (
    FILESYSTEM,
    GPU_CLUSTER,
    IMMUTABLE,
    NODE_GROUP,
)
from config import load_config
from tests.stacks import with_change
from tests.unit.cli.nebius_stack import NEBIUS


def resource(type_: str, name: str, inputs: dict[str, Any] | None = None, **more: Any) -> Resource:
    fields: dict[str, Any] = {"id": f"{name}-id", "protect": False, "retained": False, **more}
    return Resource(
        urn=f"urn:pulumi:test::slurmstack::{type_}::{name}",
        type=type_,
        name=name,
        inputs={"name": name, **(inputs or {})},
        **fields,
    )


def judge(old: list[Resource], new: list[Resource], **changed: Any) -> list[Effect]:
    sections = NEBIUS
    for path, value in changed.items():
        sections = with_change(sections, path.replace("__", "."), value)
    return list(effects(compare(old, new), load_config(sections)))


def nested(path: str, value: Any) -> dict[str, Any]:
    for part in reversed(path.split(".")):
        value = {part: value}
    return dict(value)


NAMES = {NODE_GROUP: "slurm-default-0", GPU_CLUSTER: "slurm-fabric-6", FILESYSTEM: "slurm-jail"}


@pytest.mark.parametrize(("type_", "path"), [(type_, path) for type_, paths in IMMUTABLE.items() for path in paths])
def test_a_change_of_any_property_that_never_changes_is_refused_until_the_stack_allows_it(
    type_: str, path: str
) -> None:
    name = NAMES.get(type_, "slurm")
    old = resource(type_, name, nested(path, "old"))
    new = resource(type_, name, nested(path, "new"))
    (effect,) = judge([old], [new])
    assert effect.action == "replace"
    assert [item.path for item in effect.because] == [path]
    assert f"{path} can never change" in effect.refused
    assert "allow_replacement: true" in effect.refused
    allow = "worker_nodes__default__allow_replacement" if type_ == NODE_GROUP else "cloud__allow_replacement"
    (allowed,) = judge([old], [new], **{allow: True})
    assert allowed.action == "replace"
    assert not allowed.refused


def test_a_pool_that_shares_a_gpu_cluster_must_agree_to_lose_its_machines() -> None:
    old = resource(GPU_CLUSTER, "slurm-fabric", {"infinibandFabric": "fabric-4"})
    new = resource(GPU_CLUSTER, "slurm-fabric", {"infinibandFabric": "fabric-6"})
    (effect,) = judge([old], [new], cloud__allow_replacement=True)
    assert "set worker_nodes.default.allow_replacement: true" in effect.refused
    (effect,) = judge([old], [new], worker_nodes__default__allow_replacement=True)
    assert not effect.refused
    assert "jobs end" in effect.cost


def test_permission_does_not_lift_the_protection_that_the_program_still_asks_for() -> None:
    old = resource(FILESYSTEM, "slurm-jail", {"type": "NETWORK_SSD"}, protect=True)
    new = resource(FILESYSTEM, "slurm-jail", {"type": "NETWORK_HDD"}, protect=True)
    (effect,) = judge([old], [new], cloud__allow_replacement=True)
    assert "slurmstack:protect: false" in effect.refused
    (effect,) = judge(
        [old], [resource(FILESYSTEM, "slurm-jail", {"type": "NETWORK_HDD"})], cloud__allow_replacement=True
    )
    assert not effect.refused
    assert effect.cost == "all users' files and the software in the jail are lost: the new one is empty"


def test_a_file_system_never_shrinks_whatever_the_stack_allows_unless_it_is_made_anew() -> None:
    def of(size: int, type_: str = "NETWORK_SSD") -> list[Resource]:
        return [resource(FILESYSTEM, "slurm-jail", {"type": type_, "sizeGibibytes": size})]

    allowed: dict[str, Any] = {"cloud__allow_replacement": True, "protect": False}
    assert not judge(of(2), of(3), **allowed)
    (effect,) = judge(of(2048), of(1024), **allowed)
    assert re.match("jail.size: .* cannot shrink.* copy the data", effect.refused)
    (anew,) = judge(of(2048), of(1024, "NETWORK_HDD"), **allowed)
    assert (anew.action, anew.refused) == ("replace", "")


def test_a_removed_mount_that_the_cloud_guards_says_how_to_open_the_guard() -> None:
    (effect,) = judge([resource(FILESYSTEM, "slurm-mount-data", {"forbidDeletion": True})], [])
    assert "mounts.data.filesystem.forbid_deletion: false, apply that with `up`" in effect.refused


def test_machines_of_a_removed_pool_go_but_workers_that_stay_keep_their_groups() -> None:
    old = [resource(NODE_GROUP, name) for name in ("slurm-default-0", "slurm-default-1", "slurm-old-0")]
    smaller, removed = judge(old, [resource(NODE_GROUP, "slurm-default-0")])
    assert (smaller.name, smaller.action) == ("slurm-default-1", "delete")
    assert "jobs on them end" in smaller.cost
    assert (removed.name, removed.cost) == ("slurm-old-0", "the machines of pool 'old' go, after the jobs on them")
    assert "worker_nodes.default.autoscaling.groups to 2 or more" in smaller.refused
    assert not removed.refused


def test_another_template_rolls_the_machines_and_is_told_but_not_refused() -> None:
    def group(platform: str, **metadata: Any) -> Resource:
        template = {"resources": {"platform": platform}, "metadata": metadata, "taints": [metadata]}
        return resource(
            NODE_GROUP, "slurm-default-0", {"template": template, "strategy": {"maxUnavailable": {"count": 2}}}
        )

    (effect,) = judge([group("gpu-h100-sxm")], [group("gpu-h200-sxm")])
    assert (effect.action, effect.refused) == ("update", "")
    assert "made anew, 2 at a time" in effect.cost
    assert not judge([group("gpu-h100-sxm")], [group("gpu-h100-sxm", labels={"a": "b"})]), "labels reach new machines"


def test_operators_that_go_take_their_drivers_along_and_say_so() -> None:
    (release,) = judge([resource("kubernetes:helm.sh/v3:Release", "slurm-gpu-operator")], [])
    assert "Drain such pools first" in release.cost


@pytest.mark.parametrize("value", [Secret(None), UNKNOWN])
def test_what_nobody_can_read_is_no_change(value: Any) -> None:
    old = resource(FILESYSTEM, "slurm-jail", {"type": value, "blockSizeBytes": 4096})
    new = resource(FILESYSTEM, "slurm-jail", {"type": "NETWORK_HDD", "blockSizeBytes": 4096.0})
    assert not compare([old], [new])
    assert not compare([new], [old])


def test_an_existing_resource_under_its_former_name_is_the_same_resource() -> None:
    old = resource(FILESYSTEM, "slurm-jail", {"name": "same"})
    renamed = resource(FILESYSTEM, "slurm-root", {"name": "same"}, aliases=("slurm-jail",))
    moved = resource(FILESYSTEM, "slurm-root", {"name": "same"}, aliases=(old.urn,))
    assert not compare([old], [renamed])
    assert not compare([old], [moved])
    assert {change.action for change in compare([old], [resource(FILESYSTEM, "slurm-root")])} == {"create", "delete"}


def test_a_path_through_a_list_looks_at_each_element() -> None:
    type_ = "kubernetes:apps/v1:StatefulSet"
    assert "spec.selector" in immutable_properties(type_)
    old = resource(type_, "x", {"spec": [{"selector": 1}, {"selector": 2}]})
    new = resource(type_, "x", {"spec": [{"selector": 1}, {"selector": 3}]})
    (change,) = compare([old], [new])
    assert (change.action, change.because[0].old, change.because[0].new) == ("replace", [1, 2], [1, 3])
