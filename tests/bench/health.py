"""Health: what it costs, and how soon it acts."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from local import cluster as local_cluster
from local.report import PlainReport
from tests.bench.cluster import WORKERS, Cluster
from tests.bench.figures import Bench
from tests.e2e.harness import wait_until
from tests.stacks import dev
from tests.switched_off import switch_off

CHAIN = 20
"""Jobs one after the other on one node, each of which waits for the epilog of the one before."""


def health(bench: Bench, cluster: Cluster) -> None:
    """What a job's checks cost, and how soon something is done about faults."""
    runs = range(bench.times(4))
    with_ours = [chain(cluster.as_alice) for _ in runs]
    cluster.change("slurm.settings", {"Prolog": "/usr/bin/true", "Epilog": "/usr/bin/true"})
    cluster.await_idle(*WORKERS)
    without = statistics.median(chain(cluster.as_alice) for _ in runs)
    note = f"a job of nothing then takes {without:.2f} s"
    bench.take(
        "prolog and epilog add to a job", [max(0.0, taken - without) for taken in with_ours], goal=0.3, note=note
    )
    cluster.change("slurm.settings", dev()["slurm"]["settings"])
    bench.measure("a Kubernetes node is lost -> its job is requeued", lambda _: lost_machine(cluster), runs=2, goal=60)


def chain(run: Callable[[str], str]) -> float:
    """Seconds a job takes of a chain of jobs that do nothing, each alone on the same node."""
    started = time.monotonic()
    run(f"for i in $(seq {CHAIN}); do srun --exclusive -N1 -w default-0 true; done")
    return (time.monotonic() - started) / CHAIN


def lost_machine(slurm: Cluster) -> float:
    """Seconds from the loss of a machine to the requeue of the job that it ran."""
    where = {name: str(pod["spec"]["nodeName"]) for name, pod in slurm.pods().items()}
    worker = next(name for name in WORKERS if where[name] != where["controller-0"])
    job = slurm.submit("sleep 300", f"--nodelist={worker}", "--requeue")
    slurm.await_job(job, "RUNNING")
    started = time.monotonic()
    switch_off(where[worker])
    try:
        wait_until(lambda: slurm.job_field(job, "Restarts") == "1", f"job {job} is requeued", timeout=180, slowest=0.3)
        taken = time.monotonic() - started
    finally:  # nothing could be taken away while the node is off
        local_cluster.restart_node(where[worker], PlainReport())
    slurm.slurm(f"scancel {job}")
    slurm.await_idle(*WORKERS)
    return taken
