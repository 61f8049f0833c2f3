"""`slurmstack doctor` on a real cluster: what is wrong is named first, with what mends it, and a whole one is whole."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.e2e.asking_doctor import await_nothing_found, doctor, findings, first
from tests.e2e.harness import SlurmOnKubernetes, wait_until

pytestmark = pytest.mark.watch

QUOTA = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "few"},
    "spec": {"hard": {"pods": "1"}},
}

HUGE = {"size": 1, "resources": {"cpus": 500, "memory": "2Gi"}}


def test_a_whole_cluster_has_no_finding_and_each_part_was_read(two_nodes: SlurmOnKubernetes) -> None:
    assert findings(two_nodes) == []
    assert "2 Slurm nodes" in doctor(two_nodes)[0]["looked_at"]


def test_a_node_that_somebody_drained_is_named_with_who_and_why_until_the_command_it_gives(
    two_nodes: SlurmOnKubernetes,
) -> None:
    slurm = two_nodes
    slurm.slurm("scontrol update nodename=default-1 state=drain reason='bad disk'")
    said = first(slurm)
    assert said["cause"] == "node default-1 is drained by root: bad disk"
    slurm.slurm(said["mend"].partition(" -- ")[2])
    slurm.await_idle("default-0", "default-1")
    assert findings(slurm) == []


def test_jobs_that_never_start_are_named_and_a_held_one_is_explained_when_asked(two_nodes: SlurmOnKubernetes) -> None:
    slurm = two_nodes
    held = slurm.submit("true", "--hold")
    failed = slurm.submit("false")
    slurm.await_job(failed, "FAILED")
    lost = slurm.submit("true", f"--dependency=afterok:{failed}")
    slurm.await_reason(lost, "DependencyNeverSatisfied")
    assert first(slurm)["cause"].startswith(f"job {lost} of alice never starts as it is")
    assert "its user holds it" in first(slurm, "job", held)["cause"]
    assert first(slurm, "job", failed)["cause"] == f"job {failed} has ended: FAILED"
    slurm.slurm(f"scancel {held} {lost}")
    assert findings(slurm) == []


def test_a_configuration_that_slurm_refuses_is_named_with_slurm_s_words(two_nodes: SlurmOnKubernetes) -> None:
    slurm = two_nodes
    good = slurm.sections
    assert slurm.change("slurm.settings.DefMemPerCPUU", 5, check=False).returncode == 1
    said = first(slurm)
    assert said["cause"] == "Slurm refuses its new configuration; the old one goes on"
    assert "DefMemPerCPUU" in said["evidence"][0]
    slurm.sections = good
    slurm.up()
    assert findings(slurm) == []


def test_a_worker_for_which_no_machine_has_room_is_named_with_what_is_short(two_nodes: SlurmOnKubernetes) -> None:
    slurm = two_nodes
    before = slurm.sections
    pools = {**before["worker_nodes"], "huge": HUGE}
    main = {**before["partitions"]["main"], "pools": list(pools)}
    slurm.sections = {**before, "worker_nodes": pools, "partitions": {"main": main}}
    try:
        slurm.up()
        said = wait_until(lambda: findings(slurm), "something is found")[0]
        assert said["cause"].startswith("pod huge-0 cannot be placed: ")
        assert "Insufficient cpu" in said["cause"]
    finally:
        slurm.sections = before  # the next tests of the lane would wait for it
        slurm.up()


def kubectl(slurm: SlurmOnKubernetes, *arguments: str) -> str:
    """What kubectl prints about the cluster's namespace."""
    return slurm.kubectl.run(*arguments, "-n", slurm.namespace).stdout


def signal_slurmctld(slurm: SlurmOnKubernetes, name: str) -> None:
    slurm.slurm(f"for pid in /proc/[0-9]*; do [ $(cat $pid/comm) != slurmctld ] || kill -{name} ${{pid#/proc/}}; done")


def within_a_quota(slurm: SlurmOnKubernetes) -> None:
    """A worker is lost, and the namespace may have no other."""
    slurm.kubectl.run("apply", "-n", slurm.namespace, "-f", "-", stdin=json.dumps(QUOTA))
    kubectl(slurm, "delete", "pod", "default-1", "--wait=true")


@dataclass(frozen=True, kw_only=True)
class Situation:
    """What is done, what doctor shall say first, and what undoes it."""

    provoke: Callable[[SlurmOnKubernetes], object]
    cause: str
    undo: Callable[[SlurmOnKubernetes], object]


SITUATIONS = {
    "controller hangs": Situation(
        provoke=lambda slurm: signal_slurmctld(slurm, "STOP"),
        cause="slurmctld does not answer",
        undo=lambda slurm: signal_slurmctld(slurm, "CONT"),
    ),
    "quota": Situation(
        provoke=within_a_quota,
        cause="default-1 of StatefulSet default: Kubernetes refuses to make it",
        undo=lambda slurm: kubectl(slurm, "delete", "resourcequota", "few"),
    ),
}


@pytest.mark.parametrize("name", SITUATIONS)
def test_what_happens_is_named_first_and_nothing_when_it_is_over(two_nodes: SlurmOnKubernetes, name: str) -> None:
    slurm, situation = two_nodes, SITUATIONS[name]
    situation.provoke(slurm)
    try:
        said = wait_until(lambda: findings(slurm), "something is found")
        assert said[0]["cause"] == situation.cause, said
    finally:
        situation.undo(slurm)
        slurm.await_idle("default-0", "default-1")
    await_nothing_found(slurm)
