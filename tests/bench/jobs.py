"""Many jobs, and what comes before and after each."""

from __future__ import annotations

import time

from tests.bench.cluster import Cluster
from tests.bench.row import Measuring

TASKS = 1000
"""Tasks of the large array job."""


def array(bench: Measuring, cluster: Cluster) -> None:
    """An array of tasks that do nothing, on two nodes of two slots."""

    def once(_: int) -> float:
        started = time.monotonic()
        cluster.as_alice(f"sbatch --array=1-{TASKS} --output=/dev/null --wrap true")
        cluster.await_empty_queue(timeout=900)
        return time.monotonic() - started

    row = bench.measure(f"{TASKS}-task array of `true` on two nodes of two slots", once, runs=3, goal=50)
    row.note = f"{TASKS / row.median:.0f} tasks a second"
