"""Another release of Slurm with another root of the jail, under a stream of submissions: how long none is accepted."""

from __future__ import annotations

from tests.bench.cluster import WORKERS, Cluster
from tests.bench.figures import Bench
from tests.e2e.harness import wait_until
from tests.e2e.job_stream import stream_of_jobs
from tests.stacks import with_change

OLD, NEW = "24.11", "26.05"
"""The only step that a stack file can name."""


def upgrade(bench: Bench, cluster: Cluster) -> None:
    """Nothing leads back to the older release, so each run ends with the cluster, data and all."""
    gaps: list[float] = []
    lost: list[float] = []
    jobs = 0
    for number in range(bench.times(3)):
        if number:
            cluster.start()
        cluster.know_login()
        with stream_of_jobs(cluster, seed=2605 + number, seconds=(0, 1), pause=0.2) as stream:
            wait_until(lambda: len(stream.accepted) >= 5, "a stream of jobs")
            cluster.sections = with_change(cluster.sections, "jail.root", f"slurm-{NEW}")
            cluster.sections = with_change(cluster.sections, "slurm.version", NEW)
            cluster.up()
            there = len(stream.accepted)
            wait_until(lambda: len(stream.accepted) > there + 3, "jobs are accepted", timeout=120)  # noqa: B023
        cluster.await_rolled(*WORKERS)
        cluster.await_ready()
        gaps.append(stream.longest_gap)
        lost.append(len(stream.wrong()))
        jobs += len(stream.accepted)
        bench.say(f"{gaps[-1]:.1f} s without an accepted submission; the cluster is taken away")
        cluster.sections = dict(cluster.began)
        cluster.destroy(delete_data=True)
    name = f"upgrade {OLD} -> {NEW}"
    bench.take(f"{name}: longest time without an accepted submission", gaps, goal=15, worst=True)
    bench.take(f"{name}: jobs that did not run, or not once", lost, unit="jobs", goal=0, worst=True,
               note=f"of {jobs:,} accepted")  # fmt: skip
