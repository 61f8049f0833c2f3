"""Another template for a pool of which half is busy: until all of its nodes have new pods."""

from __future__ import annotations

import time

from tests.bench.cluster import WORKERS, Cluster
from tests.bench.figures import Bench
from tests.e2e.harness import wait_until
from tests.stacks import with_change

POOL, SIZE, JOB_SECONDS = "many", 20, 60
NODES = tuple(f"{POOL}-{number}" for number in range(SIZE))

SUBMIT = """
for _ in $(seq {jobs}); do
    sbatch --quiet -p {pool} --exclusive --mem=10 --output=/dev/null --wrap 'sleep {seconds}'
done
"""


def roll(bench: Bench, cluster: Cluster) -> None:
    """Two nodes at once, as by default: a tenth of the pool. One after the other the jobs would take ten minutes."""
    pool = {"size": SIZE, "resources": {"cpus": 1, "memory": "256Mi"}}
    cluster.sections = {
        **cluster.sections,
        "worker_nodes": {**cluster.sections["worker_nodes"], POOL: pool},
        "partitions": {**cluster.sections["partitions"], POOL: {"pools": [POOL]}},
    }
    cluster.up()

    def once(number: int) -> float:
        cluster.await_idle(*WORKERS, *NODES)
        before = cluster.pod_uids()
        cluster.as_alice(SUBMIT.format(jobs=SIZE // 2, pool=POOL, seconds=JOB_SECONDS))
        running = "squeue --noheader --states=running --format=%A | wc -l"
        wait_until(lambda: cluster.slurm(running).strip() == str(SIZE // 2), "the jobs run", slowest=0.3)
        started = time.monotonic()
        cluster.sections = with_change(cluster.sections, f"worker_nodes.{POOL}.resources.memory", f"{260 + number}Mi")
        cluster.up()
        new = lambda: all(cluster.pod_uids().get(name) not in {None, before[name]} for name in NODES)  # noqa: E731
        wait_until(new, "all nodes have new pods", timeout=900)
        cluster.await_idle(*WORKERS, *NODES)
        return time.monotonic() - started

    name = f"{SIZE} workers, half with a job of {JOB_SECONDS} s: another template -> all new"
    bench.measure(name, once, runs=2, goal=JOB_SECONDS + 60)
