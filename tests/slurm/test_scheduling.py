"""Who goes first, who gives way, who may use a partition: our slurm.conf with real daemons and a real database."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from config import load_config
from slurm.conf import render
from tests import stacks
from tests.slurm.accounting import AccountingSandbox, sacctmgr
from tests.slurm.cluster import ClusterFactory
from tests.slurm.configuring import activate
from tests.slurm.minimal import add_accounts, identity
from tests.slurm.sandbox import SlurmSandbox

USERS = {"alice": ("ml", 10001), "bob": ("web", 10002)}
"""User -> account and uid."""

ALL = "-N2 -n4"
"""All CPUs of both nodes."""

POLICY = [
    "add qos low,high",
    "modify qos high set preempt=low priority=100",
    "add account ml,web",
    "modify account ml,web set qos=normal,low,high",
    "add user alice account=ml",
    "add user bob account=web",
]

PARTITIONS: dict[str, Any] = {
    "main": {"pools": ["default"], "default": True},
    "urgent": {"pools": ["default"], "priority_tier": 10},
}


def files(version: str, **sections: Any) -> dict[str, str]:
    """A pool of two nodes with two partitions, and what `sections` says besides."""
    by_qos = sections.get("preemption", {}).get("type") == "qos"
    base = stacks.dev() | {
        "accounts": {"ml": {}, "web": {}},
        "qos": {"low": {}, "high": {"preempt": ["low"]} if by_qos else {}},
        "users": {name: {"uid": uid, "accounts": [account]} for name, (account, uid) in USERS.items()},
        "partitions": PARTITIONS,
        "slurm": {"version": version, "settings": {"DefMemPerCPU": 100}},
    }
    return render(load_config(base | sections))


@pytest.fixture(scope="module")
def running(slurm_cluster: ClusterFactory, slurm_version: str) -> SlurmSandbox:
    """Two nodes with two CPUs each, MariaDB, slurmdbd and a policy."""
    sandbox = slurm_cluster(slurm_version, config=files(slurm_version), workers=2, kind=AccountingSandbox)
    known = identity({name: uid for name, (_, uid) in USERS.items()}, "/tmp")
    add_accounts(known, *(pod.root for pod in sandbox.pods.values()))
    for line in POLICY:
        done = sacctmgr(sandbox, line)
        assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"
    return sandbox


@pytest.fixture
def cluster(running: SlurmSandbox) -> SlurmSandbox:
    """The cluster without jobs."""
    running.run("scancel --user=alice; scancel --user=bob")
    running.wait_for_nodes(2)
    return running


def apply(cluster: SlurmSandbox, **sections: Any) -> None:
    """Put a configuration in force."""
    activate(cluster, files(cluster.version, **sections))


def as_user(cluster: SlurmSandbox, user: str, command: str) -> subprocess.CompletedProcess[str]:
    _, uid = USERS[user]
    return cluster.run(f"cd /tmp && setpriv --reuid={uid} --regid={uid} --init-groups {command}", pod="default-0")


def submit(cluster: SlurmSandbox, user: str, options: str, script: str = "sleep 600") -> str:
    done = as_user(cluster, user, f"sbatch --parsable --output=/dev/null {options} --wrap '{script}'")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def refused(cluster: SlurmSandbox, user: str, options: str) -> str:
    done = as_user(cluster, user, f"sbatch --output=/dev/null {options} --wrap true")
    assert done.returncode == 1, done.stdout
    return done.stderr


def test_a_job_of_a_higher_qos_takes_the_nodes_and_the_other_runs_again(cluster: SlurmSandbox) -> None:
    apply(cluster, preemption={"type": "qos", "mode": "requeue"})
    victim = submit(cluster, "alice", f"--qos=low {ALL}", 'test -n "$SLURM_RESTART_COUNT" || sleep 600')
    cluster.wait_for_job(victim, "RUNNING")
    urgent = submit(cluster, "bob", f"--qos=high {ALL}", "sleep 2")
    cluster.wait_for_job(urgent, "COMPLETED")
    cluster.wait_for_job(victim, "1", "Restarts")
    cluster.wait_for_start(victim)
    cluster.wait_for_job(victim, "COMPLETED")


def test_a_partition_of_a_higher_tier_takes_the_nodes(cluster: SlurmSandbox) -> None:
    apply(cluster, preemption={"type": "partition", "mode": "cancel"})
    victim = submit(cluster, "alice", ALL)
    cluster.wait_for_job(victim, "RUNNING")
    cluster.wait_for_job(submit(cluster, "bob", f"--partition=urgent {ALL}"), "RUNNING")
    cluster.wait_for_job(victim, "PREEMPTED")


def test_jobs_wait_for_licenses(cluster: SlurmSandbox) -> None:
    apply(cluster, licenses={"matlab": 2, "fluent": 1})
    holder = submit(cluster, "alice", "--licenses=matlab:2")
    cluster.wait_for_job(holder, "RUNNING")
    waiting = submit(cluster, "bob", "--licenses=matlab:1")
    cluster.wait_for_job(waiting, "Licenses", "Reason")
    cluster.wait_for_job(submit(cluster, "bob", "--licenses=fluent"), "RUNNING")
    assert "Invalid license specification" in refused(cluster, "alice", "--licenses=matlab:3")
    assert "Invalid license specification" in refused(cluster, "alice", "--licenses=abaqus")
    cluster.run(f"scancel {holder}")
    cluster.wait_for_job(waiting, "RUNNING")


def test_a_partition_lets_in_whom_it_is_for(cluster: SlurmSandbox) -> None:
    apply(cluster, partitions={**PARTITIONS, "urgent": {**PARTITIONS["urgent"], "allow_accounts": ["ml"]}})
    cluster.wait_for_job(submit(cluster, "alice", "--partition=urgent"), "RUNNING")
    assert "Invalid account" in refused(cluster, "bob", "--partition=urgent")
