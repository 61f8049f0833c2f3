"""Health: what it costs, and how soon it acts."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from local import cluster as local_cluster
from local.report import PlainReport
from tests.bench.cluster import WORKERS, Cluster
from tests.bench.row import Measuring
from tests.e2e.harness import wait_until
from tests.fakes.gpus import FakeGpus
from tests.stacks import dev

CHAIN = 20
"""Jobs one after the other on one node, each of which waits for the epilog of the one before."""

QUIET_SECONDS = 60
"""So long an idle worker's use of CPU is watched."""


def health(bench: Measuring, cluster: Cluster) -> None:
    """CPU seconds are CPU seconds; all others pass on the clock."""
    runs = range(bench.times(4))
    bench.say(f"an idle worker is watched for {len(runs)} minutes, now and once more at the end")
    with_checks = [quiet_minute(cluster, WORKERS[0]) for _ in runs]
    with_ours = [chain(cluster.as_alice) for _ in runs]
    cluster.change("slurm.settings", {"Prolog": "/usr/bin/true", "Epilog": "/usr/bin/true"})
    cluster.await_idle(*WORKERS)
    without = statistics.median(chain(cluster.as_alice) for _ in runs)
    note = f"a job of nothing then takes {without:.2f} s"
    bench.take(
        "prolog and epilog add to a job", [max(0.0, taken - without) for taken in with_ours], goal=0.3, note=note
    )
    cluster.change("slurm.settings", dev()["slurm"]["settings"])
    faults(bench, cluster)
    cluster.change("health", {"enabled": False})
    cluster.await_idle(*WORKERS)
    bare = statistics.median(quiet_minute(cluster, WORKERS[0]) for _ in runs)
    name = "CPU seconds a minute that checks every 30 s add to an idle worker"
    note = f"an idle worker without checks uses {bare:.2f}"
    bench.take(name, [max(0.0, used - bare) for used in with_checks], goal=0.2, note=note)


def faults(bench: Measuring, cluster: Cluster) -> None:
    """How soon something is done about them."""
    gpus = give_gpus(cluster)
    drained = "a GPU is lost (played) -> its node is drained"
    bench.measure(drained, lambda _: lost_gpu(cluster, gpus, WORKERS[0]), runs=4, goal=35)
    cluster.up()
    bench.measure("a Kubernetes node is lost -> its job is requeued", lambda _: lost_machine(cluster), runs=2, goal=60)


def cpu_seconds(slurm: Cluster, pod: str) -> float:
    """What the slurmd container of a worker has used until now, by its control group of version 2 or 1."""
    files = "cd /sys/fs/cgroup; cat cpu.stat 2>/dev/null || echo usage_nsec $(cat cpuacct/cpuacct.usage)"
    lines = slurm.exec(pod, "sh", "-c", files, container="slurmd").splitlines()
    used = dict(line.split() for line in lines)
    return int(used["usage_usec"]) / 1e6 if "usage_usec" in used else int(used["usage_nsec"]) / 1e9


def quiet_minute(slurm: Cluster, pod: str) -> float:
    """CPU seconds a minute of an idle worker."""
    before, started = cpu_seconds(slurm, pod), time.monotonic()
    time.sleep(QUIET_SECONDS)
    return (cpu_seconds(slurm, pod) - before) * 60 / (time.monotonic() - started)


def chain(run: Callable[[str], str]) -> float:
    """Seconds a job takes of a chain of jobs that do nothing, each alone on the same node."""
    started = time.monotonic()
    run(f"for i in $(seq {CHAIN}); do srun --exclusive -N1 -w default-0 true; done")
    return (time.monotonic() - started) / CHAIN


def drained(slurm: Cluster, node: str) -> bool:
    """Whether a check keeps jobs from a node."""
    return "health/" in slurm.slurm(f"scontrol show node {node} | grep -F Reason=", check=False)


def give_gpus(slurm: Cluster) -> FakeGpus:
    """One GPU in each worker, at which the checks have looked."""
    gpus = FakeGpus(slurm)
    looks = "scontrol show node {} | grep -q 'Comment=.*ok:.*gpu-presence'"
    for node in WORKERS:
        wait_until(
            lambda: slurm.slurm(f"{looks.format(node)} && echo yes", check=False).strip() == "yes",  # noqa: B023
            f"{node} looks at its GPU", timeout=240,
        )  # fmt: skip
    return gpus


def lost_gpu(slurm: Cluster, gpus: FakeGpus, node: str) -> float:
    """Seconds from a GPU's loss to the drain; afterwards all is well again."""
    started = time.monotonic()
    gpus.set(node, there=False)
    wait_until(lambda: drained(slurm, node), f"{node} is drained", timeout=120)
    taken = time.monotonic() - started
    gpus.set(node, there=True)
    wait_until(lambda: not drained(slurm, node), f"{node} is resumed", timeout=180)
    # Another one forgets that this check has failed before: else each lift would take longer than the last one.
    slurm.kubectl.run("rollout", "restart", "deployment/health-watch", "-n", slurm.namespace)
    slurm.kubectl.run("rollout", "status", "deployment/health-watch", "-n", slurm.namespace)
    return taken


def lost_machine(slurm: Cluster) -> float:
    """Seconds from the loss of a machine to the requeue of the job that it ran."""
    where = {name: str(pod["spec"]["nodeName"]) for name, pod in slurm.pods().items()}
    worker = next(name for name in WORKERS if where[name] != where["controller-0"])
    job = slurm.submit("sleep 300", f"--nodelist={worker}", "--requeue")
    slurm.await_job(job, "RUNNING")
    started = time.monotonic()
    local_cluster.stop_node(where[worker], PlainReport())
    try:
        wait_until(lambda: slurm.job_field(job, "Restarts") == "1", f"job {job} is requeued", timeout=180, slowest=0.3)
        taken = time.monotonic() - started
    finally:  # nothing could be taken away while the node is off
        local_cluster.restart_node(where[worker], PlainReport())
    slurm.slurm(f"scancel {job}")
    slurm.await_idle(*WORKERS)
    return taken
