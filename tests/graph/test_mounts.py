"""Shared volumes: the jail's, the controller's, and those in `slurmstack:mounts`."""

from __future__ import annotations

import json
from typing import Any

import pulumi
import pulumi_kubernetes as k8s
import pytest

from cli.program.recording import Recording, record
from cli.program.values import reveal
from components.clouds.base import StaticVolumeArgs
from components.clouds.existing import ExistingCluster
from tests import stacks
from tests.stacks import with_change

MOUNTS = {"data": {"path": "/data", "size": "2Ti", "storage_class": "shared"}, "models": {"path": "/opt/models"}}


def inputs(recording: Recording, name: str) -> dict[str, Any]:
    (found,) = [item for item in recording if item.name == name and item.custom]
    return dict(reveal(found.inputs))


def container(recording: Recording, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The pod's spec and its main container."""
    spec = inputs(recording, name)["spec"]["template"]["spec"]
    return spec, spec["containers"][0]


def environment(of: dict[str, Any]) -> dict[str, str]:
    return {variable["name"]: variable["value"] for variable in of["env"] if "value" in variable}


def static_volume(
    _: ExistingCluster, args: StaticVolumeArgs, opts: pulumi.ResourceOptions
) -> k8s.core.v1.PersistentVolume:
    name = f"{args.namespace}-{args.claim}"
    return k8s.core.v1.PersistentVolume(
        name,
        metadata=k8s.meta.v1.ObjectMetaArgs(name=name),
        spec=k8s.core.v1.PersistentVolumeSpecArgs(
            capacity={"storage": args.size},
            access_modes=[args.access_mode],
            host_path=k8s.core.v1.HostPathVolumeSourceArgs(path=f"/mnt/slurmstack/{args.claim}"),
        ),
        opts=opts,
    )


@pytest.fixture
def filesystems(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cloud whose machines mount its shared file systems."""
    monkeypatch.setattr(ExistingCluster, "static_volume", static_volume)
    monkeypatch.setattr(ExistingCluster, "volume_filesystem", "virtiofs")


def with_mounts() -> dict[str, Any]:
    return with_change(stacks.existing(), "mounts", MOUNTS)


def test_each_mount_is_one_protected_claim_that_many_pods_may_write() -> None:
    recording = record(with_mounts(), stack="prod")
    claim = inputs(recording, "slurm-mount-data-claim")
    assert claim["metadata"]["name"] == "mount-data"
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    assert claim["spec"]["storageClassName"] == "shared"
    assert claim["spec"]["resources"] == {"requests": {"storage": "2Ti"}}
    assert all(item.protect for item in recording if item.name.startswith("slurm-mount-") and item.custom)


@pytest.mark.parametrize("name", ["slurm-pool-cpu-pods", "slurm-login-pods"])
def test_workers_and_login_nodes_mount_it_and_are_told_where_to_show_it(name: str) -> None:
    spec, main = container(record(with_mounts(), stack="prod"), name)
    volumes = {volume["name"]: volume.get("persistentVolumeClaim") for volume in spec["volumes"]}
    assert volumes["mount-data"] == {"claimName": "mount-data"}
    assert {"name": "mount-data", "mountPath": "/mounts/data"} in main["volumeMounts"]
    assert json.loads(environment(main)["MOUNTS"]) == [
        {"source": "/mounts/data", "path": "/data"},
        {"source": "/mounts/models", "path": "/opt/models"},
    ]


def test_a_pool_without_the_jail_has_it_at_the_same_path() -> None:
    _, main = container(record(with_mounts(), stack="prod"), "slurm-pool-plain-pods")
    assert {"name": "mount-data", "mountPath": "/data"} in main["volumeMounts"]
    assert json.loads(environment(main)["MOUNTS"])[0] == {"source": "/data", "path": "/data"}


def test_a_mount_touches_only_the_pods_that_see_it() -> None:
    before = {item.name: reveal(item.inputs) for item in record(stacks.existing(), stack="prod")}
    after = {item.name: reveal(item.inputs) for item in record(with_mounts(), stack="prod")}
    assert {name for name in before if before[name] != after[name]} == {
        "slurm-login-pods", "slurm-pool-cpu-pods", "slurm-pool-gpu-pods", "slurm-pool-plain-pods",
    }  # fmt: skip


def test_the_order_of_mounts_in_the_stack_file_changes_nothing() -> None:
    reordered = with_change(stacks.existing(), "mounts", dict(reversed(MOUNTS.items())))
    first, second = (
        container(record(sections, stack="prod"), "slurm-login-pods") for sections in (with_mounts(), reordered)
    )
    assert first == second


def test_on_the_local_cluster_a_mount_is_a_directory() -> None:
    sections = with_change(stacks.dev(), "mounts", {"data": {"path": "/data", "size": "1Gi"}})
    recording = record(sections, stack="dev")
    volume = inputs(recording, "slurm-mount-data")["spec"]
    assert volume["hostPath"]["path"].endswith("/volumes/slurm/mount-data")
    assert volume["claimRef"] == {"namespace": "slurm", "name": "mount-data"}
    claim = inputs(recording, "slurm-mount-data-claim")["spec"]
    assert (claim["volumeName"], claim["storageClassName"]) == ("slurm-mount-data", "")


@pytest.mark.usefixtures("filesystems")
def test_a_file_system_of_the_cloud_grows_without_a_change_of_its_claim() -> None:
    sections = with_change(with_mounts(), "mounts.models.size", "3Ti")
    small, large = record(with_mounts(), stack="prod"), record(sections, stack="prod")
    assert inputs(small, "slurm-mount-models-claim")["spec"] == inputs(large, "slurm-mount-models-claim")["spec"]
    assert inputs(large, "slurm-mount-models")["spec"]["capacity"] == {"storage": "3Ti"}
    assert inputs(large, "slurm-mount-models-claim")["metadata"]["annotations"] == {"slurmstack/size": "3Ti"}


@pytest.mark.usefixtures("filesystems")
def test_pods_are_told_which_file_system_their_volumes_must_be() -> None:
    sections = with_mounts()
    del sections["jail"]["storage_class"]
    recording = record(sections, stack="prod")
    for name in ("slurm-jail-populate", "slurm-users-job", "slurm-pool-cpu-pods", "slurm-login-pods"):
        _, program = container(recording, name)
        assert environment(program)["EXPECT_FILESYSTEM"] == "virtiofs", name
    _, login = container(recording, "slurm-login-pods")
    expected = {entry["path"]: entry.get("filesystem") for entry in json.loads(environment(login)["MOUNTS"])}
    assert expected == {"/data": None, "/opt/models": "virtiofs"}, "/data is served by a storage class"
    _, plain = container(recording, "slurm-pool-plain-pods")
    assert "EXPECT_FILESYSTEM" not in environment(plain)
    expected = {entry["source"]: entry.get("filesystem") for entry in json.loads(environment(plain)["MOUNTS"])}
    assert expected == {"/data": None, "/opt/models": "virtiofs"}
    agent = inputs(recording, "slurm-controller-pods")["spec"]["template"]["spec"]["containers"][1]
    assert environment(agent)["EXPECT_FILESYSTEM"] == "virtiofs"


@pytest.mark.usefixtures("filesystems")
def test_a_jail_of_a_storage_class_may_be_any_file_system() -> None:
    _, populate = container(record(stacks.existing(), stack="prod"), "slurm-jail-populate")
    assert "EXPECT_FILESYSTEM" not in environment(populate)
