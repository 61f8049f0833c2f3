"""What a worker's pod is told and given: how jobs are held, what is served of them, and its scratch."""

from __future__ import annotations

from typing import Any

import pytest

from cli.program.recording import Recording
from tests import stacks
from tests.graph.objects import environment, mounts, pod, recorded, volumes


@pytest.mark.parametrize(
    ("sections", "pool", "fields", "told"),
    [
        (stacks.existing(), "cpu", {}, {}),
        (stacks.existing(), "cpu", {"confinement": "required"}, {"CONFINEMENT": "required"}),
        (stacks.existing(), "cpu", {"confinement": "off"}, {"CONFINEMENT": "off"}),
        (stacks.existing(), "cpu", {"containers": True}, {"CONTAINERS": "yes"}),
        (stacks.existing(), "cpu", {"containers": False}, {}),
        # Two local workers share two CPUs: both would bind their first job to the first one.
        (stacks.dev(), "default", {}, {"SHARED_CPUS": "yes"}),
    ],
)
def test_a_worker_is_told_of_holding_jobs_what_differs_from_its_defaults(
    sections: dict[str, Any], pool: str, fields: dict[str, Any], told: dict[str, str]
) -> None:
    changes = {f"worker_nodes__{pool}__{field}": value for field, value in fields.items()}
    (slurmd,) = pod(recorded(sections, **changes), f"slurm-pool-{pool}-pods")["containers"]
    found = environment(slurmd)
    assert {name: found[name] for name in ("CONFINEMENT", "CONTAINERS", "SHARED_CPUS") if name in found} == told


# Scratch: the volume that is /tmp

CLAIM = {"size": "2Ti", "storage_class": "fast"}
DIRECTORY = {"size": "2Ti", "host_path": "/mnt/nvme"}


def with_scratch(scratch: dict[str, Any] | None, pool: str = "cpu") -> Recording:
    return recorded(**({f"worker_nodes__{pool}__scratch": scratch} if scratch else {}))


def at_tmp(spec: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The mount of /tmp, and its volume."""
    mount = mounts(spec["containers"][0])["/tmp"]
    return mount, volumes(spec)[mount["name"]]


@pytest.mark.parametrize("pool", ["cpu", "plain"])
def test_a_claim_comes_and_goes_with_each_pod(pool: str) -> None:
    spec = pod(with_scratch(CLAIM, pool), f"slurm-pool-{pool}-pods")
    mount, volume = at_tmp(spec)
    claim = volume["ephemeral"]["volumeClaimTemplate"]
    assert claim["spec"] == {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "fast",
        "resources": {"requests": {"storage": "2Ti"}},
    }
    assert claim["metadata"]["labels"]["slurmstack/pool"] == pool
    assert mount.keys() == {"name", "mountPath"}
    assert environment(spec["containers"][0])["SCRATCH"] == "storage_class"


def test_of_a_machine_s_directory_each_pod_sees_its_own_part_alone() -> None:
    spec = pod(with_scratch(DIRECTORY), "slurm-pool-cpu-pods")
    mount, volume = at_tmp(spec)
    assert volume["hostPath"] == {"path": "/mnt/nvme", "type": "Directory"}, "never made where no disk is mounted"
    assert mount["subPathExpr"] == "slurm/$(POD_NAME)", "the pods of two clusters may have the same names"
    told = environment(spec["containers"][0])
    assert (told["POD_NAME"], told["SCRATCH"]) == ({"fieldRef": {"fieldPath": "metadata.name"}}, "host_path")
    for other in (*spec["initContainers"], *spec["containers"]):
        assert len(mounts(other, volume["name"])) == (other["name"] == "slurmd")
