"""Which changes of an object of Kubernetes are refused: of claims, of what is in the jail, of names."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from cli.change.change import Change, of_object
from cli.change.effects import effects
from cli.change.owner import PUT_BACK
from config import load_config
from tests import stacks
from tests.fakes.kubectl import thing
from tests.stacks import ROOT


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
        (with_modes("ReadWriteOnce"), with_modes("ReadWriteMany"), "controller: the volume's accessModes is"),
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
