"""An elastic pool: from an empty one to a job that runs."""

from __future__ import annotations

from tests.bench.cluster import Cluster
from tests.bench.figures import Bench
from tests.e2e.harness import wait_until

POOL, MOST, IDLE_SECONDS = "burst", 4, 10

SUBMIT = """
rm -f began
submitted=$(date +%s.%N)
sbatch --quiet -p {pool} -N{nodes} --output=/dev/null --wrap '{began} > .began; mv .began began'
until [ -e began ]; do sleep 0.5; done
echo $submitted $(cat began)
"""
"""srun would ask only after 0.1, 1.1, 2.6, 4.6 and 7.1 s whether its nodes are there (src/srun/allocate.c)."""


def elastic(bench: Bench, cluster: Cluster) -> None:
    """With the images on the machines, which are there: what an autoscaler takes is not measured here."""
    pool = {**cluster.sections["worker_nodes"]["default"], "size": {"max": MOST}, "idle_timeout": f"{IDLE_SECONDS}s"}
    cluster.sections = {
        **cluster.sections,
        "worker_nodes": {**cluster.sections["worker_nodes"], POOL: pool},
        "partitions": {**cluster.sections["partitions"], POOL: {"pools": [POOL]}},
    }
    cluster.up()
    for of, nodes, runs, goal in (("a node", 1, 20, 3), (f"{MOST} nodes", MOST, 6, 5)):
        name = f"submit -> start on {of} of an empty pool"
        bench.measure(name, lambda _: once(cluster, nodes), runs=runs, goal=goal)  # noqa: B023  at once


def once(cluster: Cluster, nodes: int) -> float:
    """From a job's submission until it runs on all of its nodes."""
    await_none(cluster)
    began = "date +%s.%N" if nodes == 1 else "srun date +%s.%N | sort | tail -1"
    submitted, started = cluster.as_alice(SUBMIT.format(pool=POOL, nodes=nodes, began=began)).split()
    return float(started) - float(submitted)


def await_none(cluster: Cluster) -> None:
    """Wait until the pool is empty, and its nodes may be started again."""
    wait_until(
        lambda: not any(name.startswith(f"{POOL}-") for name in cluster.pod_uids()), "the pool is empty", timeout=120
    )
    free = f"sinfo --noheader --partition={POOL} --states=powered_down --format=%D"
    wait_until(lambda: cluster.slurm(free).strip() == str(MOST), "its nodes are off", timeout=120, slowest=0.3)
