"""Accounting on real Kubernetes: no record of a job is lost when pods are killed, and `usage` tells what was used."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from tests.e2e.harness import SlurmOnKubernetes, slurmstack, wait_until

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


def test_usage_tells_who_used_how_much(two_nodes: SlurmOnKubernetes) -> None:
    slurm = two_nodes
    started = datetime.now(UTC)
    job = slurm.submit("sleep 12", "-n2", "--job-name=usage")
    slurm.await_job(job)

    def used() -> dict[str, float]:
        """CPU hours by user, as the command tells it."""
        begin = f"--start={started:%Y-%m-%dT%H:%M:%S}"
        told = slurmstack("usage", "--json", "--by=user", begin, "--config", str(slurm.file))
        return {row["user"]: row["cpu_hours"] * 3600 for row in json.loads(told.stdout)["rows"]}

    wait_until(lambda: used().get("alice", 0) >= 24, lambda: f"24 CPU seconds of alice, not {used()}")
    elapsed = slurm.slurm(f"sacct --noheader --allocations --jobs={job} --format=cputimeraw").strip()
    assert used()["alice"] == pytest.approx(int(elapsed), abs=1)
