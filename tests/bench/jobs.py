"""Jobs: a submission while the controller is made anew, the start of one job, an array of many."""

from __future__ import annotations

import time

from cli.kubectl.client import is_true
from tests.bench.cluster import WORKERS, Cluster
from tests.bench.figures import Bench
from tests.e2e.harness import slurmstack, wait_until
from tests.switched_off import switch_off

TASKS = 1000
"""Tasks of the large array job."""


def controller(bench: Bench, cluster: Cluster) -> None:
    """The controller's pod is deleted; until a job can be submitted again."""

    def once(_: int) -> float:
        started = time.monotonic()
        cluster.kubectl.run("delete", "pod", "controller-0", "-n", cluster.namespace, "--wait=false")
        uid = cluster.pod_uids()["controller-0"]
        wait_until(lambda: cluster.pod_uids().get("controller-0", uid) != uid, "another controller pod", slowest=0.1)
        wait_until(
            lambda: cluster.as_alice("sbatch --parsable --wrap true", check=False).strip(), "sbatch", slowest=0.1
        )
        taken = time.monotonic() - started
        cluster.await_idle(*WORKERS)
        return taken

    bench.measure("controller pod deleted -> sbatch accepted", once, runs=5, goal=4)


def lost(bench: Bench, cluster: Cluster) -> None:
    """The controller's machine loses its power, and its Node goes as soon as Kubernetes has noticed, as in clouds."""

    def once(_: int) -> float:
        machine = cluster.pods()["controller-0"]["spec"]["nodeName"]
        started = time.monotonic()
        switch_off(machine)
        wait_until(lambda: not is_true(cluster.kubectl.items("node", machine)[0], "Ready"), "noticed", slowest=0.3)
        cluster.kubectl.run("delete", "node", machine)
        wait_until(lambda: cluster.as_alice("timeout 3 sbatch --parsable --wrap true", check=False).strip(), "sbatch")
        taken = time.monotonic() - started
        slurmstack("local", "restart-node", machine)
        cluster.await_idle(*WORKERS)
        return taken

    bench.measure("controller's machine off -> sbatch accepted", once, runs=4, goal=90)


def start(bench: Bench, cluster: Cluster) -> None:
    """How long a job waits for an idle node."""

    def once(_: int) -> float:
        script = "a=$(date +%s.%N); b=$(srun -N1 date +%s.%N); echo $a $b"
        submitted, started = cluster.as_alice(script).split()
        return float(started) - float(submitted)

    bench.measure("submit (srun) -> start on an idle node", once, runs=20, goal=0.2)


def array(bench: Bench, cluster: Cluster) -> None:
    """An array of tasks that do nothing, on two nodes of two slots. Four runs: with three nothing can be compared."""

    def once(_: int) -> float:
        started = time.monotonic()
        cluster.as_alice(f"sbatch --array=1-{TASKS} --output=/dev/null --wrap true")
        cluster.await_empty_queue(timeout=900)
        return time.monotonic() - started

    row = bench.measure(f"{TASKS}-task array of `true` on two nodes of two slots", once, runs=4, goal=50)
    row.note = f"{TASKS / row.median:.0f} tasks a second"
