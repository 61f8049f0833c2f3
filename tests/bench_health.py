"""What health costs, and how soon it acts: the parts of `make bench` about it."""

from __future__ import annotations

import time
from collections.abc import Callable

from local import cluster as local_cluster
from local.report import PlainReport
from tests.e2e.fake_gpus import WORKERS, FakeGpus
from tests.e2e.harness import SlurmOnKubernetes, wait_until

CHAIN = 20
"""Jobs one after the other on one node, each of which waits for the epilog of the one before."""

QUIET_SECONDS = 60
"""So long an idle worker's use of CPU is watched."""


def cpu_seconds(slurm: SlurmOnKubernetes, pod: str) -> float:
    """What the slurmd container of a worker has used until now, by its control group of version 2 or 1."""
    files = "cd /sys/fs/cgroup; cat cpu.stat 2>/dev/null || echo usage_nsec $(cat cpuacct/cpuacct.usage)"
    lines = slurm.exec(pod, "sh", "-c", files, container="slurmd").splitlines()
    used = dict(line.split() for line in lines)
    return int(used["usage_usec"]) / 1e6 if "usage_usec" in used else int(used["usage_nsec"]) / 1e9


def quiet_minute(slurm: SlurmOnKubernetes, pod: str) -> float:
    """CPU seconds a minute of an idle worker."""
    before, started = cpu_seconds(slurm, pod), time.monotonic()
    time.sleep(QUIET_SECONDS)
    return (cpu_seconds(slurm, pod) - before) * 60 / (time.monotonic() - started)


def chain(run: Callable[[str], str]) -> float:
    """Seconds a job takes of a chain of jobs that do nothing, each alone on the same node."""
    started = time.monotonic()
    run(f"for i in $(seq {CHAIN}); do srun --exclusive -N1 -w default-0 true; done")
    return (time.monotonic() - started) / CHAIN


def drained(slurm: SlurmOnKubernetes, node: str) -> bool:
    """Whether a check keeps jobs from a node."""
    return "health/" in slurm.slurm(f"scontrol show node {node} | grep -F Reason=", check=False)


def give_gpus(slurm: SlurmOnKubernetes) -> FakeGpus:
    """One GPU in each worker, at which the checks have looked."""
    gpus = FakeGpus(slurm)
    looks = "scontrol show node {} | grep -q 'Comment=.*ok:.*gpu-presence'"
    for node in WORKERS:
        wait_until(
            lambda: slurm.slurm(f"{looks.format(node)} && echo yes", check=False).strip() == "yes",  # noqa: B023
            f"{node} looks at its GPU", timeout=240,
        )  # fmt: skip
    return gpus


def lost_gpu(slurm: SlurmOnKubernetes, gpus: FakeGpus, node: str) -> float:
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


def lost_machine(slurm: SlurmOnKubernetes) -> float:
    """Seconds from the loss of a machine to the requeue of the job that it ran."""
    where = {name: str(pod["spec"]["nodeName"]) for name, pod in slurm.pods().items()}
    worker = next(name for name in ("default-0", "default-1") if where[name] != where["controller-0"])
    job = slurm.submit("sleep 300", f"--nodelist={worker}", "--requeue")
    slurm.await_job(job, "RUNNING")
    started = time.monotonic()
    local_cluster.stop_node(where[worker], PlainReport())
    wait_until(lambda: slurm.job_field(job, "Restarts") == "1", f"job {job} is requeued", timeout=180)
    taken = time.monotonic() - started
    slurm.slurm(f"scancel {job}")
    local_cluster.restart_node(where[worker], PlainReport())
    slurm.await_idle("default-0", "default-1", timeout=240)
    return taken
