"""What may happen to a cluster, made to happen: `slurmstack doctor` names it first, and nothing when it is over.

More of it, where an apply is part of the story: test_doctor.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.e2e import going_wrong
from tests.e2e.asking_doctor import await_nothing_found, findings, first
from tests.e2e.harness import SlurmOnKubernetes, wait_until

pytestmark = pytest.mark.watch

ENFORCE = "pod-security.kubernetes.io/enforce"

QUOTA = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "few"},
    "spec": {"hard": {"pods": "1"}},
}


def kubectl(slurm: SlurmOnKubernetes, *arguments: str, check: bool = True) -> str:
    """What kubectl prints about the cluster's namespace."""
    return slurm.kubectl.run(*arguments, "-n", slurm.namespace, check=check).stdout


def in_slurm(command: str) -> Callable[[SlurmOnKubernetes], None]:
    """An administrator's command beside slurmctld."""

    def run(slurm: SlurmOnKubernetes) -> None:
        slurm.slurm(command)

    return run


def in_kubernetes(*arguments: str) -> Callable[[SlurmOnKubernetes], None]:
    def run(slurm: SlurmOnKubernetes) -> None:
        kubectl(slurm, *arguments)

    return run


def signal_slurmctld(name: str) -> Callable[[SlurmOnKubernetes], None]:
    find = f"for pid in /proc/[0-9]*; do [ $(cat $pid/comm) != slurmctld ] || kill -{name} ${{pid#/proc/}}; done"
    return in_slurm(find)


def within_a_quota(slurm: SlurmOnKubernetes) -> None:
    """A worker is lost, and the namespace may have no other."""
    slurm.kubectl.run("apply", "-n", slurm.namespace, "-f", "-", stdin=json.dumps(QUOTA))
    kubectl(slurm, "delete", "pod", "default-1", "--wait=true")


def within_pod_security(slurm: SlurmOnKubernetes) -> None:
    """A worker is lost, and the namespace takes none that may do so much."""
    slurm.kubectl.run("label", "namespace", slurm.namespace, "--overwrite", f"{ENFORCE}=restricted")
    kubectl(slurm, "delete", "pod", "default-1", "--wait=true")


def take_pods_again(slurm: SlurmOnKubernetes) -> None:
    slurm.kubectl.run("label", "namespace", slurm.namespace, "--overwrite", f"{ENFORCE}=privileged")


def apply_again(slurm: SlurmOnKubernetes) -> None:
    slurm.up()


def requeue_often(slurm: SlurmOnKubernetes) -> None:
    going_wrong.requeue(slurm, 4)


def close_all_for_a_job(slurm: SlurmOnKubernetes) -> None:
    slurm.slurm("scontrol update nodename=default-[0-1] state=drain reason=works")
    slurm.submit("true")


@dataclass(frozen=True, kw_only=True)
class Situation:
    """What is done, what doctor shall say first, and what undoes it."""

    provoke: Callable[[SlurmOnKubernetes], None]
    cause: str
    """Matches the whole of it."""
    undo: Callable[[SlurmOnKubernetes], None]


SITUATIONS = {
    "node down": Situation(
        provoke=in_slurm("scontrol update nodename=default-1 state=down reason=smoke"),
        cause="node default-1 is down by root: smoke",
        undo=in_slurm("scontrol update nodename=default-1 state=resume"),
    ),
    "controller hangs": Situation(
        provoke=signal_slurmctld("STOP"),
        cause="slurmctld does not answer",
        undo=signal_slurmctld("CONT"),
    ),
    "partition closed": Situation(
        provoke=in_slurm("scontrol update partitionname=main state=inactive"),
        cause="partition main is INACTIVE",
        undo=in_slurm("scontrol update partitionname=main state=up"),
    ),
    "no node for the queue": Situation(
        provoke=close_all_for_a_job,
        cause=r"node default-[01] is drained by root: works",
        undo=in_slurm("scancel --state=pending; scontrol update nodename=default-[0-1] state=resume"),
    ),
    "node forgotten": Situation(
        provoke=in_slurm("scontrol delete nodename=default-1"),
        cause="pod default-1 runs, and Slurm has no such node",
        undo=in_kubernetes("delete", "pod", "default-1"),
    ),
    "scaled by hand": Situation(
        provoke=in_kubernetes("scale", "statefulset", "default", "--replicas=3"),
        cause="pool default is not as in the stack file: it wants 2 nodes, the cluster has 3 nodes",
        undo=apply_again,
    ),
    "quota": Situation(
        provoke=within_a_quota,
        cause="a quota of the namespace does not let Kubernetes make default-1",
        undo=in_kubernetes("delete", "resourcequota", "few"),
    ),
    "refused pods": Situation(
        provoke=within_pod_security,
        cause="Kubernetes refuses to make default-1 of StatefulSet default",
        undo=take_pods_again,
    ),
    "requeue loop": Situation(
        provoke=requeue_often,
        cause=r"job \d+ of alice was requeued 4 times: it starts and fails again",
        undo=in_slurm("scancel --user=alice"),
    ),
}


@pytest.mark.parametrize("name", SITUATIONS)
def test_what_happens_is_named_first_and_nothing_when_it_is_over(two_nodes: SlurmOnKubernetes, name: str) -> None:
    slurm, situation = two_nodes, SITUATIONS[name]
    situation.provoke(slurm)
    try:
        # A pod that Slurm does not know may be about to join for the first two minutes that it is ready.
        said = wait_until(lambda: findings(slurm), "something is found")
        assert re.fullmatch(situation.cause, said[0]["cause"]), said
    finally:
        situation.undo(slurm)
        slurm.await_idle("default-0", "default-1")
    await_nothing_found(slurm)


def test_what_checks_and_a_prolog_find_is_told_of_their_nodes(two_nodes: SlurmOnKubernetes) -> None:
    """default-1's prolog is killed; then default-0's name leads elsewhere: the last node that takes jobs goes on."""
    slurm = two_nodes
    check = "/usr/libexec/slurmstack/health-periodic"  # else slurmd starts it twice a minute
    lead_astray = "cp /etc/hosts /tmp/hosts; printf '127.0.0.1 localhost\\n203.0.113.9 default-0\\n' >/etc/hosts"
    wanted = {
        "node default-0 takes jobs though it cannot look up names",
        "node default-1 is drained: a prolog or epilog of yours failed there",
    }
    with going_wrong.failed_prolog(slurm):
        wait_until(lambda: slurm.nodes()["default-1"] >= {"IDLE", "DRAIN"}, "default-1 is drained")
        slurm.exec("default-0", "sh", "-c", f"{lead_astray}; {check}", container="slurmd")
        try:
            wait_until(lambda: {item["cause"] for item in findings(slurm)} >= wanted, f"{wanted} are told")
            assert "203.0.113.9" in str(first(slurm, "node", "default-0")["evidence"])
            assert "Prolog error" in str(first(slurm, "node", "default-1")["evidence"])
        finally:
            slurm.exec("default-0", "sh", "-c", f"cat /tmp/hosts >/etc/hosts; {check}", container="slurmd")
    slurm.await_idle("default-0", "default-1")
    await_nothing_found(slurm)


def test_a_job_that_waits_is_told_why_each_time(two_nodes: SlurmOnKubernetes) -> None:
    slurm = two_nodes
    runs = slurm.submit("sleep 900", "--nodes=2", "--exclusive")
    slurm.await_job(runs, "RUNNING")
    reserve = "scontrol create reservation=later starttime=now+2hours duration=60 users=alice nodes=default-0"
    slurm.slurm(f"{reserve} flags=ignore_jobs")
    waits = {
        "Resources": slurm.submit("true", "--nodes=1", "--exclusive"),
        "Dependency": slurm.submit("true", f"--dependency=afterok:{runs}"),
        "Reservation": slurm.submit("true", "--reservation=later"),
        "BeginTime": slurm.submit("true", "--begin=now+1hour"),
        "JobHeldAdmin": slurm.submit("true", "--hold"),
    }
    slurm.slurm(f"scontrol hold {waits['JobHeldAdmin']}")
    try:
        told = {}
        for reason, job in waits.items():
            slurm.await_reason(job, reason)
            told[reason] = first(slurm, "job", job)
    finally:
        slurm.slurm("scancel --user=alice; scontrol delete reservationname=later")
    assert len({said["cause"].partition(" waits: ")[2] for said in told.values()}) == len(waits), told
    assert f"afterok:{runs}" in str(told["Dependency"]["evidence"])
    assert "reservation later" in told["Reservation"]["evidence"]


@dataclass(frozen=True, kw_only=True)
class NeverStarts:
    """A job that Slurm accepts, held, what is done to it or the cluster before it is released, and what is said."""

    script: tuple[str, ...] = ()
    spoil: str
    reason: str
    cause: str


NEVER_START = {
    "feature": NeverStarts(
        script=("--constraint=odd",),
        spoil="scontrol update nodename=default-1 availablefeatures=default activefeatures=default",
        reason="BadConstraints",
        cause="asks for what no node has (features, memory, CPUs, GPUs)",
    ),
    "GPUs": NeverStarts(
        spoil="scontrol update jobid={job} gres=gpu:2",
        reason="BadConstraints",
        cause="asks for what no node has (features, memory, CPUs, GPUs)",
    ),
    "memory": NeverStarts(
        spoil="scontrol update jobid={job} minmemorynode=100000",
        reason="MaxMemPerLimit",
        cause="asks for more memory than its partition or any node has",
    ),
    "nodes": NeverStarts(
        script=("--nodes=2",),
        spoil="scontrol update jobid={job} numnodes=3",
        reason="PartitionNodeLimit",
        cause="asks for more nodes, or fewer, than its partition allows or has",
    ),
    "time": NeverStarts(
        script=("--time=60",),
        spoil="scontrol update partitionname=main maxtime=10",
        reason="PartitionTimeLimit",
        cause="its time limit is longer than its partition allows",
    ),
}


def test_jobs_that_never_start_are_told_each_and_together_by_reason(two_nodes: SlurmOnKubernetes) -> None:
    """sbatch refuses such jobs; those that wait already, as a change of the cluster leaves them, are what there is."""
    slurm = two_nodes
    back = slurm.submit("sleep 600")
    slurm.slurm("scontrol update nodename=default-1 availablefeatures=default,odd activefeatures=default,odd")
    jobs = {name: slurm.submit("true", "--hold", *wanted.script) for name, wanted in NEVER_START.items()}
    slurm.await_job(back, "RUNNING")
    try:
        slurm.slurm(f"scontrol requeuehold {back}")
        for name, job in jobs.items():
            slurm.slurm(f"{NEVER_START[name].spoil.format(job=job)}; scontrol release {job}", check=False)
        for name, job in jobs.items():
            slurm.await_reason(job, NEVER_START[name].reason)
            said = first(slurm, "job", job)
            assert (said["severity"], said["cause"]) == (
                "error",
                f"job {job} of alice waits: {NEVER_START[name].cause}",
            )
        assert "somebody has ended it" in first(slurm, "job", back)["cause"]
        told = {item["evidence"][0]: item["cause"] for item in findings(slurm)}
        assert set(told) == {*(wanted.reason for wanted in NEVER_START.values()), "job requeued in held state"}
        assert told["BadConstraints"].startswith("2 jobs never start as they are: asks for what no node has")
    finally:
        put_back = "scontrol update partitionname=main maxtime=1-00:00:00"
        features = "scontrol update nodename=default-1 availablefeatures=default activefeatures=default"
        slurm.slurm(f"scancel --user=alice; {put_back}; {features}")
    await_nothing_found(slurm)
