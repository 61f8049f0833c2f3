"""One more node."""

from __future__ import annotations

from tests.bench.cluster import WORKERS, Cluster
from tests.bench.row import Measuring

ON_THREE = "[ $(srun --immediate=1 -N3 hostname 2>/dev/null | sort -u | wc -l) = 3 ]"


def scaling(bench: Measuring, cluster: Cluster) -> None:
    """From the start of the apply to a job that runs on the new node too."""

    def once(_: int) -> float:
        taken = cluster.applied_until(
            "worker_nodes.default.size", 3, lambda: cluster.as_alice(f"until {ON_THREE}; do sleep 0.1; done")
        )
        cluster.change("worker_nodes.default.size", 2)
        cluster.await_idle(*WORKERS)
        return taken

    engine = "" if cluster.engine == "kubectl" else f", {cluster.engine} engine"
    bench.measure(f"size 2 -> 3 -> a job runs on the new node{engine}", once, runs=5, goal=4)
