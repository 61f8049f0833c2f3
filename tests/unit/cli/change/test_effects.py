"""Which changes cost somebody something, and which are refused, on hand-made resources of the cloud."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest

from cli.change.change import Change, compare, of_object
from cli.change.effects import Effect, effects
from cli.change.owner import PUT_BACK
from cli.program.values import UNKNOWN, Resource, Secret
from components.clouds.nebius.immutable import (
    FILESYSTEM,
    GPU_CLUSTER,
    IMMUTABLE,
    NODE_GROUP,
)
from config import load_config
from tests import stacks
from tests.fakes.kubectl import thing
from tests.stacks import ROOT, with_change
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


# Which changes of an object of Kubernetes are refused: of claims, of what is in the jail, of names


def live(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Why an object of a cluster is not changed by an apply."""
    config = load_config(stacks.existing())
    change = Change(action="update", resource=of_object(new), before=of_object(old))
    return [effect.refused for effect in effects([change], config)]


def claim(size: str, name: str = "jail", storage_class: str | None = "fast") -> dict[str, Any]:
    spec = {"resources": {"requests": {"storage": size}}, "storageClassName": storage_class}
    return thing("PersistentVolumeClaim", name, spec=spec)


REMOVE = (
    "accounting.database.storage_class: the volume's storageClassName is '', and that can never change. Remove this"
)


DIRECTORY = "jail.size: the volume is a directory"


def of_class(storage_class: str | None, name: str = "jail") -> dict[str, Any]:
    return claim("20Gi", name, storage_class)


def with_modes(*modes: str) -> dict[str, Any]:
    item = claim("1Gi", "controller-state")
    return {**item, "spec": {**item["spec"], "accessModes": list(modes)}}


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (claim("20Gi"), claim("10Gi"), "jail.size: 10Gi is less than the 20Gi"),
        (claim("20Gi"), claim("20G"), "jail.size: 20G is less than the 20Gi"),
        (claim("2Ti", "mount-data"), claim("1Ti", "mount-data"), "mounts.data.size: 1Ti is less than the 2Ti"),
        (claim("2Gi", "controller-state"), claim("1Gi", "controller-state"), "controller.storage: 1Gi is less than"),
        (claim("20Gi"), claim("21Gi"), ""),
        (claim("1024Gi"), claim("1Ti"), ""),
        (claim("20Gi", storage_class=""), claim("30Gi", storage_class=""), DIRECTORY),
        (of_class("fast"), of_class("slow"), "jail.storage_class: the volume's storageClassName is 'fast'"),
        (of_class("", "database-data"), of_class("x", "database-data"), REMOVE),
        (of_class(None), of_class("fast"), ""),
        (with_modes("ReadWriteOnce"), with_modes("ReadWriteMany"), "controller.access_mode: the volume's accessM"),
    ],
)  # fmt: skip
def test_a_claim_keeps_its_class_and_its_modes_and_cannot_shrink(
    old: dict[str, Any], new: dict[str, Any], told: str
) -> None:
    found = live(old, new)
    assert [line[: len(told)] for line in found] == ([told] if told else [])
    for refused in found:
        assert "--delete-data" not in refused, "mounts, whose data no backup has, would go for one other volume"
        way = "add another mount" if old["metadata"]["name"].startswith("mount-") else 'backups.md, "Another volume"'
        assert ("Set it back to 20Gi" if told == DIRECTORY else way) in refused
    assert "\n## Another volume\n" in (ROOT / "docs/backups.md").read_text(encoding="utf-8"), "where the way is"


def test_a_class_that_the_stack_file_no_longer_names_is_refused_only_where_it_had_been_set_there() -> None:
    def made_by(operation: str) -> dict[str, Any]:
        item = claim("20Gi")
        fields: dict[str, Any] = {"f:spec": {"f:storageClassName": {}}}
        entries = [{"manager": "slurmstack", "operation": operation, "fieldsV1": fields}]
        return {**item, "metadata": {**item["metadata"], "managedFields": entries}}

    wanted = claim("20Gi")
    del wanted["spec"]["storageClassName"]
    (refused,) = live(made_by("Apply"), wanted)
    assert refused.startswith("jail.storage_class: the volume's storageClassName is 'fast'")
    assert not live(made_by("Update"), wanted), "Kubernetes' default class"


def controller(tag: str) -> dict[str, Any]:
    image = f"localhost/slurmstack/controller:{tag}"
    return thing("StatefulSet", "controller", spec={"template": {"spec": {"containers": [{"image": image}]}}})


def login(tag: str, root: str = "") -> dict[str, Any]:
    jail = {"mountPath": "/jail", "name": "jail"} | ({"subPath": f".slurmstack-roots/{root}/root"} if root else {})
    sshd = {"image": f"localhost/slurmstack/login:{tag}", "volumeMounts": [jail]}
    return thing("StatefulSet", "login", spec={"template": {"spec": {"containers": [sshd]}}})


def test_the_slurm_release_of_a_filled_jail_does_not_change_by_accident() -> None:
    (refused,) = live(login("24.11-0123456789ab"), login("26.05-0123456789ab"))
    assert refused.startswith("slurm.version: the jail was filled with Slurm 24.11")
    assert not live(login("24.11-0123456789ab"), login("24.11-4567456789ab"))
    assert not live(login("24.11-0123456789ab"), login("26.05-4567456789ab", "blue"))
    assert live(login("24.11-0123456789ab", "blue"), login("26.05-4567456789ab", "blue"))
    assert not live(login("26.05-0123456789ab", "blue"), login("24.11-4567456789ab", "green")), "what it has, is asked"
    assert not live(login("mine"), login("26.05-4567456789ab"))


def test_state_cannot_go_back_to_an_older_release_unless_a_backup_of_it_was_put_back() -> None:
    old, new = controller("24.11-0123456789ab"), controller("26.05-0123456789ab")
    (refused,) = live(new, old)
    assert "the cluster's state is that of Slurm 26.05, which 24.11 cannot read" in refused
    stopped = copy.deepcopy(new)
    stopped["spec"]["replicas"] = 0
    assert live(stopped, old)
    stopped["metadata"] = {**stopped["metadata"], "annotations": {PUT_BACK: "20261127T101500Z"}}
    assert not live(stopped, old)
    stopped["spec"]["replicas"] = 1
    assert live(stopped, old), "it has started since, and has written what it can read"


def test_a_newer_release_says_that_only_a_backup_takes_it_back() -> None:
    before, after = (of_object(controller(f"{release}-0123456789ab")) for release in ("24.11", "26.05"))
    change = Change(action="update", resource=after, before=before)
    (effect,) = effects([change], load_config(stacks.existing()))
    assert effect.cost.endswith("only a backup takes that back")
    assert not effect.refused


def test_a_cluster_keeps_its_name() -> None:
    def conf(name: str) -> dict[str, Any]:
        return thing("ConfigMap", "slurm-config", data={"slurm.conf": f"# cluster {name}.\nClusterName={name}\n"})

    (refused,) = live(conf("slurm"), conf("hpc"))
    assert refused.startswith("slurm.cluster_name: the cluster's state is that of 'slurm'")
    assert "set it back to slurm" in refused
    assert not live(conf("slurm"), conf("slurm"))
