"""Shared volumes: the jail with its roots, homes of their own, `slurmstack:mounts`: who mounts which, and where."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pulumi
import pulumi_kubernetes as k8s
import pytest

from cli.program.recording import Recording, record
from components.clouds.base import StaticVolumeArgs, host_volume
from components.clouds.connect import ExistingCluster
from components.kit.volumes import SHARED_DIRECTORY
from config.sections.storage import SHARED
from images.common import jail_roots
from slurm.names import JAIL_ROOTS
from tests import stacks
from tests.graph.diff import Diff
from tests.graph.objects import changed, differing, environment, inputs, mounts, pod, recorded, volumes
from tests.graph.state import compare_files

FOR_USERS = ("slurm-login-pods", "slurm-pool-cpu-pods")
FILLS = ("slurm-jail-populate", "slurm-users-job")


def shown(recording: Recording, name: str) -> list[dict[str, str]]:
    """What a pod for users is told to show in the jail."""
    found: list[dict[str, str]] = json.loads(environment(main(recording, name))["MOUNTS"])
    return found


def main(recording: Recording, name: str) -> dict[str, Any]:
    return dict(pod(recording, name)["containers"][0])


def refusals(tmp_path: Path, old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    return [item.refused for item in compare_files(tmp_path, old, new).effects if item.refused]


# Mounts

MOUNTS = {"data": {"path": "/data", "size": "2Ti", "storage_class": "shared"}, "models": {"path": "/opt/models"}}


@pytest.fixture
def filesystems(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cloud whose machines mount its shared file systems."""

    def static_volume(
        _: ExistingCluster, args: StaticVolumeArgs, opts: pulumi.ResourceOptions
    ) -> k8s.core.v1.PersistentVolume:
        return host_volume(args, f"/mnt/slurmstack/{args.claim}", opts, kind="Directory")

    monkeypatch.setattr(ExistingCluster, "static_volume", static_volume)
    monkeypatch.setattr(ExistingCluster, "volume_filesystem", "virtiofs")


def with_mounts(**changes: Any) -> dict[str, Any]:
    return changed(mounts=MOUNTS, **changes)


def test_a_mount_is_a_claim_at_the_path_where_each_pod_for_users_looks_and_touches_no_other_pod() -> None:
    recording = recorded(with_mounts())
    for name in FOR_USERS:
        assert volumes(pod(recording, name))["mount-data"]["persistentVolumeClaim"] == {"claimName": "mount-data"}
        assert mounts(main(recording, name), "mount-data").keys() == {"/mounts/data"}
        assert shown(recording, name) == [
            {"source": "/mounts/data", "path": "/data"},
            {"source": "/mounts/models", "path": "/opt/models"},
        ]
    assert mounts(main(recording, "slurm-pool-plain-pods"), "mount-data").keys() == {"/data"}, "it has no jail"
    assert shown(recording, "slurm-pool-plain-pods")[0] == {"source": "/data", "path": "/data"}
    assert {name for name in differing(recorded(), recording) if "mount" not in name} == {
        *FOR_USERS, "slurm-pool-gpu-pods", "slurm-pool-plain-pods",
    }  # fmt: skip


def test_the_state_may_be_on_a_volume_that_several_machines_mount() -> None:
    """As clusters have it that had two controllers: a claim can never change its access mode."""
    sections = changed(controller__storage_class="nfs", controller__access_mode="ReadWriteMany")
    assert inputs(recorded(sections), "slurm-controller-state")["spec"]["accessModes"] == ["ReadWriteMany"]


@pytest.mark.usefixtures("filesystems")
def test_a_file_system_of_the_cloud_grows_without_a_change_of_its_claim() -> None:
    small, large = (record(with_mounts(mounts__models__size=size), stack="prod") for size in ("2Ti", "3Ti"))
    assert inputs(small, "slurm-mount-models-claim")["spec"] == inputs(large, "slurm-mount-models-claim")["spec"]
    assert inputs(large, "slurm-mount-models")["spec"]["capacity"] == {"storage": "3Ti"}
    assert inputs(large, "slurm-mount-models-claim")["metadata"]["annotations"] == {"slurmstack/size": "3Ti"}


# Homes on a volume of their own

SAVED = {"endpoint": "https://s3.example.com", "bucket": "site-backups", "credentials_secret": "backup"}


def with_homes(**jail: Any) -> dict[str, Any]:
    stack = changed(backup=SAVED)
    return stack | {"jail": {**stack["jail"], "homes": {"size": "2Ti", "storage_class": "shared"}, **jail}}


def test_homes_are_neither_added_to_a_cluster_nor_taken_from_one_by_a_change(tmp_path: Path) -> None:
    without = changed(backup=SAVED)
    (added,) = refusals(tmp_path, without, with_homes())
    assert added.startswith("jail.homes: homes of this cluster are in the jail's volume, and pods would show users an")
    assert "Remove this key" in added
    removed = refusals(tmp_path, with_homes(), without)
    assert any("homes of this cluster are on a volume of their own" in text for text in removed)
    assert any("Put it back" in text for text in removed)
    assert not refusals(tmp_path, with_homes(), with_homes(root="blue"))
    diff = Diff(with_homes(), with_homes(root="blue"))
    assert "slurm-jail-homes" not in {*diff.changed, *diff.replaced}


# Named roots in the jail's volume


def rooted(**more: Any) -> dict[str, Any]:
    stack = stacks.existing()
    return stack | {"jail": {**stack["jail"], "root": "blue", **more}}


def test_a_mount_at_a_shared_path_wins() -> None:
    found = shown(recorded(rooted(), mounts={"homes": {"path": "/home", "storage_class": "x"}}), "slurm-login-pods")
    assert [(item["path"], item["source"]) for item in found] == [("/srv", "/shared/srv"), ("/home", "/mounts/homes")]


def test_another_root_rolls_what_leads_into_it_and_keeps_keys_claims_and_the_controller() -> None:
    baseline = changed(worker_nodes__gpu__security="baseline")
    diff = Diff(baseline, {**baseline, "jail": rooted()["jail"]})
    assert set(diff.replaced) == {*FILLS}
    assert {*FOR_USERS} <= set(diff.changed)
    assert not [name for name in diff.changed if "controller" in name or "accounting" in name]
    assert "slurm-pool-gpu-pods" not in diff.changed, "it has no jail"


def test_names_are_the_same_on_both_sides() -> None:
    assert (JAIL_ROOTS, SHARED) == (jail_roots.ROOTS, jail_roots.SHARED)
    assert SHARED_DIRECTORY not in {f"/{name}" for name in SHARED}
