"""Pools of workers of several kinds beside each other: without the jail, and on machines of their own.

GPUs: tests/slurm/test_gpus.py. Options for clouds that make machines are refused here (tests/unit/config/cases).
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slurm.local_cluster import local_directory
from tests.e2e.harness import SlurmOnKubernetes, wait_until
from tests.security.walk import SCRIPT, left_open, walked

pytestmark = pytest.mark.disruptive

LABEL = "slurmstack-test/machine"
TAINT = {"key": LABEL, "value": "team", "effect": "NoSchedule"}
TINY = {"cpus": 1, "memory": "768Mi", "cpu_request": "10m"}
DISK = local_directory() / "volumes/disk-of-test-pools"
"""In place of a disk that is mounted on a machine; both machines have it. Kept apart from the volumes of namespaces."""
POOLS: dict[str, dict[str, Any]] = {
    "plain": {"size": 1, "resources": TINY, "security": "baseline", "shared_memory": "32Mi"},
    "team": {
        "size": 1,
        "resources": {**TINY, "cpus": 3},
        "features": ["fast"],
        "drain_timeout": 600,
        "confinement": "off",
        "containers": True,
        "node_selector": {LABEL: "team"},
        "tolerations": [TAINT],
        "scratch": {"size": "1Gi", "host_path": str(DISK)},
    },
}
NODES = ("default-0", "default-1", "plain-0", "team-0")


@pytest.fixture(scope="module")
def pools(slurm: SlurmOnKubernetes) -> Iterator[SlurmOnKubernetes]:
    """The cluster with two more pools and a partition for each; one machine is kept for `team`."""
    before = slurm.sections
    keep = ("node-1", f"{LABEL}={TAINT['value']}")
    slurm.kubectl.run("label", "node", *keep, "--overwrite")
    slurm.kubectl.run("taint", "node", f"{keep[0]}", f"{keep[1]}:{TAINT['effect']}", "--overwrite")
    DISK.mkdir(parents=True, exist_ok=True)
    try:
        partitions = {**before["partitions"], **{name: {"pools": [name]} for name in POOLS}}
        slurm.sections = {**before, "partitions": partitions}
        slurm.change("worker_nodes", {**before["worker_nodes"], **POOLS})
        wait_until(lambda: set(NODES) <= set(slurm.nodes()), lambda: f"nodes of all pools: {slurm.nodes()}")
        slurm.await_idle(*NODES)
        yield slurm
    finally:
        slurm.slurm("scancel --user=alice", check=False)  # of a test that failed: `up` would wait for it, or refuse
        slurm.sections = before
        try:
            slurm.up()
            slurm.await_idle("default-0", "default-1")
        finally:
            slurm.kubectl.run("label", "node", keep[0], f"{LABEL}-")
            slurm.kubectl.run("taint", "node", keep[0], f"{LABEL}-")
            shutil.rmtree(DISK, ignore_errors=True)


def of_team(slurm: SlurmOnKubernetes) -> Path:
    """The part of the disk that is /tmp of the pod `team-0`."""
    return DISK / slurm.namespace / "team-0"


def test_each_pool_offers_what_its_resources_say(pools: SlurmOnKubernetes) -> None:
    shown = pools.slurm("sinfo --noheader --Node --partition=plain,team --format='%N %c %m %G'").splitlines()
    assert [line.split() for line in shown] == [
        ["plain-0", "1", "640", "(null)"], ["team-0", "3", "640", "(null)"],
    ]  # fmt: skip


def test_a_job_of_a_pool_that_allows_it_makes_user_namespaces(pools: SlurmOnKubernetes) -> None:
    step = "srun -n1 -p {} --user-namespace unshare -Ur id -u 2>&1 || true"
    assert pools.ssh(step.format("team")) == "0\n"
    assert "this pool allows no user namespaces" in pools.ssh(step.format("main"))


def test_a_pool_without_the_jail_runs_jobs_as_their_users_without_any_capability(pools: SlurmOnKubernetes) -> None:
    script = "id; pwd; grep CapBnd /proc/self/status; ls -d /.slurmstack /home/alice; df -k --output=size /dev/shm"
    user, directory, bounding, *rest = pools.ssh(f"srun -p plain sh -c '{script}'").splitlines()
    assert user.startswith("uid=10001(alice) gid=10001(alice) groups=10001(alice)"), user
    assert directory == "/tmp"
    assert int(bounding.split()[1], 16) & 1 << 21 == 0, "CAP_SYS_ADMIN"
    assert rest[-1].strip() == str(32 * 1024), rest
    assert len(rest) == 2, "neither a jail nor a home"
    printed = pools.exec("plain-0", "python3", "-c", SCRIPT, "/", container="slurmd")
    assert not left_open(printed)
    assert walked(printed) >= {"/run/slurm", "/var/spool/slurmd", "/dev/shm", "/tmp"}


def test_a_feature_leads_jobs_to_the_machine_that_is_kept_for_its_pool(pools: SlurmOnKubernetes) -> None:
    machines = {name: pod["spec"].get("nodeName") for name, pod in pools.pods().items()}
    assert machines["team-0"] == "node-1"
    assert machines["plain-0"] == "node-0", "it does not tolerate the taint"
    assert pools.ssh("srun -p main,team --constraint=fast hostname") == "team-0\n"


def test_tmp_of_a_pool_s_jobs_lies_on_the_disk_of_their_machine_and_goes_with_them(pools: SlurmOnKubernetes) -> None:
    # It comes to an end by itself, so that a test which fails leaves no job that the pool would wait for.
    script = "echo here > /tmp/file; for i in $(seq 300); do test -e ~/read && exit; sleep 0.2; done; exit 1"
    job = pools.submit(script, "-p team", "--tmp=1000M", "--output=/dev/null")
    directory = of_team(pools) / "jobs" / job
    file = directory / "file"
    wait_until(lambda: file.exists() and file.read_text() == "here\n", f"{file} has what the job writes into /tmp")
    assert (directory.stat().st_uid, directory.stat().st_mode & 0o777) == (10001, 0o700)
    shown = pools.ssh(f"srun -Q --jobid={job} --overlap cat /proc/self/mountinfo").splitlines()
    options = [set(line.split()[5].split(",")) for line in shown if line.split()[4] == "/tmp"]
    assert options, shown
    assert all({"nosuid", "nodev"} <= found for found in options), shown
    pools.ssh("touch ~/read")
    pools.await_job(job)
    pools.ssh("rm ~/read")
    wait_until(lambda: not list((of_team(pools) / "jobs").iterdir()), "nothing of the job is left on the disk")
    assert " TmpDisk=1024 " in pools.slurm("scontrol show node team-0 --oneliner")
    assert "not available" in pools.ssh("srun -p team --tmp=2G true 2>&1", check=False)


def test_a_changed_option_rolls_its_pool_alone_and_after_its_job(pools: SlurmOnKubernetes) -> None:
    slurm = pools
    before = slurm.pod_uids()
    assert slurm.pods()["team-0"]["spec"]["terminationGracePeriodSeconds"] == 600 + 30
    job = slurm.submit("until test -e ~/go; do sleep 0.2; done", "-p team", "--time=5", "--output=/dev/null")
    slurm.await_job(job, "RUNNING")
    slurm.sections = {**slurm.sections, "users": {**slurm.sections["users"], "bob": {"uid": 10002}}}
    slurm.change("worker_nodes.team.shared_memory", "48Mi")
    wait_until(lambda: "DRAIN" in slurm.nodes()["team-0"], "team-0 drains")
    assert slurm.job_state(job) == "RUNNING"
    (of_team(slurm) / "left").write_text("as a pod that was killed leaves it")
    slurm.ssh("touch ~/go")
    slurm.await_job(job)
    slurm.await_rolled(*NODES)
    assert slurm.ssh("rm ~/go; srun -p team df -k --output=size /dev/shm").split()[-1] == str(48 * 1024)
    after = slurm.pod_uids()
    assert {name for name in NODES if after[name] != before[name]} == {"team-0"}
    wait_until(lambda: not list(of_team(slurm).glob("*left*")), "what lay on the scratch goes with the pod")
    # Kubernetes brings a changed ConfigMap to a running pod within about a minute; at once when the pod is changed.
    slurm.kubectl.run("annotate", "pod", "plain-0", "-n", slurm.namespace, "slurmstack/test=looked")
    srun = "setpriv --reuid=10002 --regid=10002 --clear-groups srun -Q -p plain id -un"
    wait_until(lambda: slurm.slurm(srun, check=False) == "bob\n", "the new user runs a job")
