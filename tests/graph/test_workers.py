"""Pods of workers and logins: how jobs are held, GPUs, scratch, what is served of jobs; limits of logins."""

from __future__ import annotations

from typing import Any

import pytest

from cli.program.recording import Recording
from images.common.gpu_jobs import SHOWN
from images.jail.known_host import KEY, LOGIN_KEY
from tests import stacks
from tests.graph.objects import containers, differing, environment, mounts, objects, pod, recorded, volumes


def test_a_worker_knows_which_plugins_the_stack_file_names_and_whether_others_use_its_cpus() -> None:
    """Two local workers share two CPUs: both would bind their first job to the first one."""
    plugins = {"TaskPlugin": "task/none", "proctracktype": "proctrack/pgid"}
    changes = {"slurm__settings": plugins, "worker_nodes__default__confinement": "off"}
    found = environment(pod(recorded(stacks.dev(), **changes), "slurm-pool-default-pods")["containers"][0])
    told = {"CONFINEMENT": "off", "PLUGINS": "proctracktype taskplugin", "SHARED_CPUS": "yes"}
    assert told.items() <= found.items()


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


def gpu_pod(gpus: Any) -> dict[str, Any]:
    """A pod of a pool with these GPUs."""
    recording = recorded(worker_nodes__gpu__resources__gpus=gpus, worker_nodes__gpu__confinement="required")
    return pod(recording, "slurm-pool-gpu-pods")


def test_slurmd_is_told_whose_gpus_its_pod_has() -> None:
    """How many are asked for: tests/unit/config/test_gpus.py."""
    nvidia = {"NVIDIA_DRIVER_CAPABILITIES": "compute,utility,video"}
    of_amd = {"count": 8, "vendor": "amd", "type": "mi300x"}
    for gpus, told in ((8, nvidia), ({"count": 2, "mig": {"1g.10gb": 7}}, nvidia), (of_amd, {"GPU_VENDOR": "amd"})):
        found = environment(gpu_pod(gpus)["containers"][0])
        assert {name: found[name] for name in ("GPU_VENDOR", "NVIDIA_DRIVER_CAPABILITIES") if name in found} == told


def test_only_where_it_is_asked_for_exporters_of_the_machine_are_shown_the_jobs() -> None:
    spec = gpu_pod({"count": 8, "job_files": True})
    (volume,) = [one for one in spec["volumes"] if "hostPath" in one]
    assert volume["hostPath"] == {"path": str(SHOWN), "type": "DirectoryOrCreate"}
    assert mounts(spec["containers"][0], volume["name"]).keys() == {str(SHOWN)}
    assert not [one for one in gpu_pod(8)["volumes"] if "hostPath" in one]


LIMITS = {
    "processes": 200, "open_files": 1024, "memory": "4Gi", "cpu_minutes": 60, "total_memory": "1Gi",
    "total_cpus": "1.5",
}  # fmt: skip


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        (LIMITS, "nproc=200 nofile=1024 as=4194304 cpu=60 total_memory=1073741824 total_cpus=1500"),
        ({}, "nproc=4096"),
        ({"processes": None}, None),
    ],
)
def test_limits_of_login_nodes_reach_sshd_and_nobody_else_and_bind_unless_the_stack_file_says_otherwise(
    limits: dict[str, Any], told: str | None
) -> None:
    sshd, *others = pod(recorded(login__user_limits=limits), "slurm-login-pods")["containers"]
    assert environment(sshd).get("USER_LIMITS") == told
    assert "USER_LIMITS" not in str(others)


def test_a_worker_with_the_jail_has_sshd_that_ends_after_slurmd_with_a_key_of_its_own() -> None:
    recording = recorded(login__user_limits=LIMITS)
    spec = pod(recording, "slurm-pool-cpu-pods")
    sshd = containers(spec)["worker-sshd"]
    assert list(containers(spec)) == ["munged", "slurmd", "worker-sshd"], "slurmd does not wait for it"
    assert not {"readinessProbe", "startupProbe", "livenessProbe"} & sshd.keys(), "slurmd is ready without it"
    assert all(mounts(sshd)[path]["readOnly"] for path in ("/run/slurm", "/var/spool/slurmd", "/secrets/ssh"))
    assert volumes(spec)["worker-host-key"]["secret"]["secretName"] == "worker-host-key"
    assert volumes(spec)[mounts(sshd)["/tmp"]["name"]] != volumes(spec)[mounts(spec["containers"][0])["/tmp"]["name"]]
    assert environment(sshd)["USER_LIMITS"] == "nofile=1024 as=4194304 cpu=60 total_cpus=1500"
    public = objects(recording, "ConfigMap")["worker-host-key"]["data"]
    assert all(key.startswith("ssh-ed25519 ") for key in public.values())
    assert {*public} == {KEY.name, LOGIN_KEY}, "as the jail's ssh looks for them"
    for one, container in ((spec, "slurmd"), (pod(recording, "slurm-login-pods"), "sshd")):
        shown = mounts(containers(one)[container])["/run/slurm/ssh"]
        assert volumes(one)[shown["name"]]["configMap"]["name"] == "worker-host-key"


@pytest.mark.parametrize(("pool", "changes"), [("plain", {}), ("cpu", {"worker_ssh": False})])
def test_without_the_jail_or_where_it_is_turned_off_a_worker_has_no_sshd(pool: str, changes: dict[str, Any]) -> None:
    spec = pod(recorded(**changes), f"slurm-pool-{pool}-pods")
    assert list(containers(spec)) == ["munged", "slurmd"]
    assert not {"worker-host-key", "worker-public-key"} & volumes(spec).keys()


def test_who_turns_ssh_to_workers_off_and_on_again_loses_no_key() -> None:
    changed = differing(recorded(worker_ssh=False), recorded())
    assert {"slurm-login-pods", "slurm-pool-cpu-pods"} <= changed
    assert not [name for name in changed if "secret" in name]
