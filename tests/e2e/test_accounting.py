"""Accounting on real Kubernetes: no record of a job is lost when pods are killed, and `usage` tells what was used."""

from __future__ import annotations

import json

import pytest

from tests.e2e.harness import SlurmOnKubernetes, wait_until

BURST = 60


def _records(slurm: SlurmOnKubernetes) -> dict[int, str]:
    """End state of each job that sacct knows; none while slurmdbd does not answer."""
    printed = slurm.slurm("sacct --allusers --allocations --starttime=now-1days --json 2>/dev/null", check=False)
    if not printed.strip():
        return {}
    return {job["job_id"]: " ".join(job["state"]["current"]) for job in json.loads(printed)["jobs"]}


def _await_records(slurm: SlurmOnKubernetes, jobs: set[int]) -> None:
    def missing() -> dict[int, str]:
        found = _records(slurm)
        return {job: found.get(job, "no record") for job in jobs if found.get(job) != "COMPLETED"}

    try:
        wait_until(lambda: not missing(), f"records of {len(jobs)} jobs")
    except AssertionError as error:
        raise AssertionError(missing()) from error


@pytest.mark.parametrize("pods", [("database-0",), ("slurmdbd-0", "database-0")])
def test_no_record_is_lost_when_pods_are_killed_in_a_burst_of_jobs(
    two_nodes: SlurmOnKubernetes, pods: tuple[str, ...]
) -> None:
    slurm = two_nodes
    before = slurm.pod_uids()
    submit = "sbatch --parsable --output=/dev/null --wrap true"
    jobs = {int(job) for job in slurm.ssh(f"for n in $(seq {BURST // 3}); do {submit}; done").split()}
    slurm.lose_pods(*pods)
    jobs |= {int(job) for job in slurm.ssh(f"for n in $(seq {BURST - BURST // 3}); do {submit}; done").split()}
    assert len(jobs) == BURST
    wait_until(lambda: all(slurm.pod_uids().get(pod, before[pod]) != before[pod] for pod in pods), "other pods")
    _await_records(slurm, jobs)
