"""Homes on a volume of their own: who mounts it, who does not, and that no change adds or removes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.change.owner import KEPT, KEPT_OF, refuse_other_kept
from cli.errors import Refused
from cli.program.recording import Recording
from cli.program.values import reveal
from components.kit.volumes import SHARED_DIRECTORY
from config import load_config
from slurm.names import HOMES, HOMES_ENV
from tests import stacks
from tests.graph.diff import Diff
from tests.graph.state import compare_files
from tests.recordings import record
from tests.stacks import with_change

HERE = f"{SHARED_DIRECTORY}/home"
SAVED = {"endpoint": "https://s3.example.com", "bucket": "site-backups", "credentials_secret": "backup"}


def with_homes(**jail: Any) -> dict[str, Any]:
    stack = {**stacks.existing(), "backup": SAVED}
    return stack | {"jail": {**stack["jail"], "homes": {"size": "2Ti", "storage_class": "shared"}, **jail}}


@pytest.fixture(scope="module", params=[None, "blue"])
def recording(request: pytest.FixtureRequest) -> Recording:
    return record(with_homes(**({} if request.param is None else {"root": request.param})), stack="prod")


def inputs(recording: Recording, name: str) -> dict[str, Any]:
    (found,) = [item for item in recording if item.name == name and item.custom]
    return dict(reveal(found.inputs))


def pod(recording: Recording, name: str) -> dict[str, Any]:
    spec = inputs(recording, name)["spec"]
    return dict((spec.get("jobTemplate", {}).get("spec") or spec)["template"]["spec"])


def mounted(container: dict[str, Any]) -> list[dict[str, Any]]:
    return [mount for mount in container["volumeMounts"] if mount["name"] == HOMES]


def environment(container: dict[str, Any]) -> dict[str, str]:
    return {variable["name"]: variable["value"] for variable in container["env"] if "value" in variable}


def test_it_is_a_protected_claim_that_many_pods_may_write(recording: Recording) -> None:
    claim = inputs(recording, "slurm-jail-homes")
    assert claim["metadata"]["name"] == HOMES
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    assert claim["spec"]["storageClassName"] == "shared"
    assert claim["spec"]["resources"] == {"requests": {"storage": "2Ti"}}
    assert all(item.protect for item in recording if item.name == "slurm-jail-homes")


@pytest.mark.parametrize("name", ["slurm-login-pods", "slurm-pool-cpu-pods"])
def test_pods_for_users_have_it_beside_the_jail_and_show_it_as_home(recording: Recording, name: str) -> None:
    spec = pod(recording, name)
    container = spec["containers"][0]
    assert {"name": HOMES, "persistentVolumeClaim": {"claimName": HOMES}} in spec["volumes"]
    assert mounted(container) == [{"name": HOMES, "mountPath": HERE}]
    assert [mount["mountPath"] for mount in container["volumeMounts"]].count(HERE) == 1
    shown = json.loads(environment(container)["MOUNTS"])
    assert [item for item in shown if item["path"] == "/home"] == [{"source": HERE, "path": "/home"}]
    assert environment(container)[HOMES_ENV] == HERE


def test_a_pool_without_the_jail_has_none(recording: Recording) -> None:
    assert HOMES not in json.dumps(pod(recording, "slurm-pool-plain-pods"))


def test_what_makes_homes_has_it_and_what_fills_roots_only_knows_of_it(recording: Recording) -> None:
    users, populate = (pod(recording, name) for name in ("slurm-users-job", "slurm-jail-populate"))
    assert mounted(users["containers"][0]) == [{"name": HOMES, "mountPath": HERE}]
    assert mounted(populate["containers"][0]) == []
    assert [volume["name"] for volume in populate["volumes"]] == ["jail"], "nor does `slurmstack jail`, by its likes"
    for spec in (users, populate):
        assert environment(spec["containers"][0])[HOMES_ENV] == HERE


def test_backups_read_it_with_the_jail_and_restores_write_it(recording: Recording) -> None:
    saving, restoring = (pod(recording, f"slurm-backup-{name}") for name in ("backup", "restore"))
    (reading,) = saving["containers"]
    assert mounted(reading) == [{"name": HOMES, "mountPath": HERE, "readOnly": True}]
    writing = {each["name"]: each for each in [*restoring["initContainers"], *restoring["containers"]] if mounted(each)}
    assert set(writing) == {"restore-jail", "users"}
    for container in (reading, *writing.values()):
        assert environment(container)[HOMES_ENV] == HERE
    for spec in (saving, restoring):
        assert {"name": HOMES, "persistentVolumeClaim": {"claimName": HOMES}} in spec["volumes"]


def test_with_a_named_root_only_srv_is_the_jails() -> None:
    container = pod(record(with_homes(root="blue"), stack="prod"), "slurm-login-pods")["containers"][0]
    jail = {mount["mountPath"]: mount["subPath"] for mount in container["volumeMounts"] if mount["name"] == "jail"}
    assert jail == {"/jail": ".slurmstack-roots/blue/root", "/shared/srv": "srv"}


def test_another_root_changes_nothing_of_homes() -> None:
    diff = Diff(with_homes(), with_homes(root="blue"))
    assert "slurm-jail-homes" not in {*diff.changed, *diff.replaced}


def refusals(tmp_path: Path, old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    return [item.refused for item in compare_files(tmp_path, old, new).effects if item.refused]


def test_neither_is_it_added_to_a_cluster_nor_taken_from_one(tmp_path: Path) -> None:
    without = {**stacks.existing(), "backup": SAVED}
    (added,) = refusals(tmp_path, without, with_homes())
    assert added.startswith("jail.homes: homes of this cluster are in the jail's volume, and pods would show users an")
    assert "Remove this key" in added
    removed = refusals(tmp_path, with_homes(), without)
    assert any("homes of this cluster are on a volume of their own" in text for text in removed)
    assert any("Put it back" in text for text in removed)
    assert not refusals(tmp_path, with_homes(), with_homes(root="blue"))


def test_its_size_is_told_by_its_key_and_may_grow(tmp_path: Path) -> None:
    (small,) = refusals(tmp_path, with_homes(), with_change(with_homes(), "jail.homes.size", "1Ti"))
    assert small.startswith("jail.homes.size: 1Ti is less than the 2Ti that it has")
    assert not refusals(tmp_path, with_homes(), with_change(with_homes(), "jail.homes.size", "3Ti"))


@pytest.mark.parametrize(("was", "fits"), [(True, True), (False, False), (None, True)])
def test_data_that_destroy_has_kept_is_taken_up_with_homes_where_they_are(was: bool | None, fits: bool) -> None:
    told = {"cluster_name": "slurm", "slurm": "24.11", "root": ""} | ({} if was is None else {"homes": was})
    kept = {"name": "slurm", "labels": {KEPT: "true"}, "annotations": {KEPT_OF: json.dumps(told)}}
    config = load_config(with_change(with_homes(), "slurm.cluster_name", "slurm"))
    if fits:
        refuse_other_kept({"metadata": kept}, config)
        return
    with pytest.raises(
        Refused, match=r"the data that `destroy` has kept. jail.homes: homes of this cluster are in the"
    ):
        refuse_other_kept({"metadata": kept}, config)


def test_on_the_local_cluster_it_is_a_directory() -> None:
    sections = with_change(stacks.dev(), "jail.homes", {"size": "1Gi"})
    volume = inputs(record(sections, stack="dev"), f"slurm-{HOMES}")["spec"]
    assert volume["hostPath"]["path"].endswith(f"/volumes/slurm/{HOMES}")
    assert volume["claimRef"] == {"namespace": "slurm", "name": HOMES}


def test_on_nebius_it_is_a_file_system_of_the_machines_that_need_it() -> None:
    sections = {**with_change(stacks.nebius(), "jail.homes", {"size": "512Gi"}), "backup": SAVED}
    recording = record(sections, stack="nebius")
    made = [(item.name, dict(reveal(item.inputs))) for item in recording if item.custom]
    sizes = {name: given["sizeGibibytes"] for name, given in made if "sizeGibibytes" in given}
    assert sizes[f"slurm-{HOMES}"] == 512
    groups = [(name, json.dumps(given["template"])) for name, given in made if "autoscaling" in given]
    assert len(groups) >= 4
    assert not [name for name, told in groups if f"/mnt/slurmstack/{HOMES}" not in told], "each has a pod that needs it"
    assert inputs(recording, "slurm-jail-homes")["metadata"]["annotations"] == {"slurmstack/size": "512Gi"}
    login = pod(recording, "slurm-login-pods")["containers"][0]
    assert {"source": HERE, "path": "/home", "filesystem": "virtiofs"} in json.loads(environment(login)["MOUNTS"])
