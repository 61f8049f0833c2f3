"""A pool's scratch: the volume that is /tmp of its workers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cli.change.change import compare, of_recording
from cli.program.recording import Recording
from cli.program.values import reveal
from tests import stacks
from tests.recordings import record
from tests.stacks import with_change

CLAIM = {"size": "2Ti", "storage_class": "fast"}
DIRECTORY = {"size": "2Ti", "host_path": "/mnt/nvme"}


def pod(recording: Recording, pool: str) -> dict[str, Any]:
    (found,) = [item for item in recording if item.name == f"slurm-pool-{pool}-pods"]
    return dict(reveal(found.inputs)["spec"]["template"]["spec"])


def with_scratch(scratch: dict[str, Any], pool: str = "cpu") -> Recording:
    return record(with_change(stacks.existing(), f"worker_nodes.{pool}.scratch", scratch), stack="prod")


def at_tmp(spec: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The mount of /tmp, and its volume."""
    (container,) = spec["containers"]
    (mount,) = [one for one in container["volumeMounts"] if one["mountPath"] == "/tmp"]
    (volume,) = [one for one in spec["volumes"] if one["name"] == mount["name"]]
    return mount, volume


def environment(spec: dict[str, Any]) -> dict[str, Any]:
    return {one["name"]: one["value"] if "value" in one else one["valueFrom"] for one in spec["containers"][0]["env"]}


@pytest.mark.parametrize("pool", ["cpu", "plain"])
def test_a_claim_comes_and_goes_with_each_pod(pool: str) -> None:
    spec = pod(with_scratch(CLAIM, pool), pool)
    mount, volume = at_tmp(spec)
    template = volume["ephemeral"]["volumeClaimTemplate"]
    assert template["spec"] == {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "fast",
        "resources": {"requests": {"storage": "2Ti"}},
    }
    assert template["metadata"]["labels"]["slurmstack/pool"] == pool
    assert mount.keys() == {"name", "mountPath"}
    assert environment(spec)["SCRATCH"] == "storage_class"


def test_of_a_machine_s_directory_each_pod_sees_its_own_part_alone() -> None:
    spec = pod(with_scratch(DIRECTORY), "cpu")
    mount, volume = at_tmp(spec)
    assert volume["hostPath"] == {"path": "/mnt/nvme", "type": "Directory"}, "never made where no disk is mounted"
    assert mount["subPathExpr"] == "slurm/$(POD_NAME)", "the pods of two clusters may have the same names"
    assert environment(spec)["POD_NAME"] == {"fieldRef": {"fieldPath": "metadata.name"}}
    assert environment(spec)["SCRATCH"] == "host_path"
    for other in (*spec["initContainers"], *spec["containers"]):
        mounts = [one for one in other["volumeMounts"] if one["name"] == volume["name"]]
        assert len(mounts) == (other["name"] == "slurmd")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, CLAIM),
        (None, DIRECTORY),
        (CLAIM, None),
        (DIRECTORY, None),
        (CLAIM, DIRECTORY),
        (CLAIM, CLAIM | {"size": "1Ti"}),
        (CLAIM, CLAIM | {"storage_class": "other"}),
        (DIRECTORY, DIRECTORY | {"host_path": "/mnt/other"}),
    ],
)
def test_any_change_of_it_gives_the_pool_new_pods_and_replaces_nothing(
    before: dict[str, Any] | None, after: dict[str, Any] | None
) -> None:
    """A StatefulSet's own `volumeClaimTemplates` could not change in place: the claim is a part of the pod."""
    old, new = (
        of_recording(with_scratch(scratch) if scratch else record(stacks.existing(), stack="prod"))
        for scratch in (before, after)
    )
    (change,) = compare(old, new)
    assert (change.action, change.name) == ("update", "cpu")
    assert {path.path.partition("spec.template.spec.")[1] for path in change.properties} == {"spec.template.spec."}


def test_the_kinds_of_volumes_have_names_of_their_own() -> None:
    """Where one took the other's place under its name, server-side apply could leave a volume of two kinds."""
    with_none = at_tmp(pod(record(stacks.existing(), stack="prod"), "cpu"))
    names = {at_tmp(pod(with_scratch(scratch), "cpu"))[1]["name"] for scratch in (CLAIM, DIRECTORY)}
    assert len({with_none[1]["name"], *names}) == 3


@pytest.mark.parametrize("scratch", [CLAIM, DIRECTORY])
def test_slurm_is_told_and_what_remains_on_the_machine_s_disk_stays_bounded(scratch: dict[str, Any]) -> None:
    recording = with_scratch(scratch)
    spec, before = pod(recording, "cpu"), pod(record(stacks.existing(), stack="prod"), "cpu")
    assert json.loads(environment(spec)["NODE_CONF"])["disk_mib"] == 2 * 2**20
    assert "tmp" not in {volume["name"] for volume in spec["volumes"]}
    assert spec["containers"][0]["resources"] == before["containers"][0]["resources"]
    for other in ("gpu", "plain"):
        assert pod(recording, other) == pod(record(stacks.existing(), stack="prod"), other)
