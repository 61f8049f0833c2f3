"""`kubectl drain` of a machine: Slurm's daemons move at once, workers after their jobs, and nothing is lost."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.e2e.harness import SlurmOnKubernetes, wait_until
from tests.e2e.job_stream import stream_of_jobs

pytestmark = pytest.mark.disruptive

PATIENCE_S = 300


@contextmanager
def drain_of(slurm: SlurmOnKubernetes, machine: str) -> Iterator[subprocess.Popen[str]]:
    """The command, while it runs; of this cluster's pods alone, as other clusters are on the machine too."""
    command = [
        *slurm.kubectl.command(), "drain", machine, "--ignore-daemonsets", "--delete-emptydir-data",
        f"--pod-selector=app.kubernetes.io/instance={slurm.namespace}", f"--timeout={PATIENCE_S}s",
    ]  # fmt: skip
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        yield running
    finally:
        running.kill()
        running.communicate()
        slurm.kubectl.run("uncordon", machine)


def machines(slurm: SlurmOnKubernetes) -> dict[str, str]:
    """Where each pod of the cluster runs that is ready and does not leave."""
    return {
        name: pod["spec"].get("nodeName", "")
        for name, pod in slurm.pods().items()
        if "deletionTimestamp" not in pod["metadata"]
        and all(container["ready"] for container in pod["status"].get("containerStatuses", [{"ready": False}]))
    }


@pytest.mark.timeout(900)
@pytest.mark.parametrize("machine", ["node-0", "node-1"])
def test_any_machine_may_be_drained_under_jobs(two_nodes: SlurmOnKubernetes, machine: str) -> None:
    slurm = two_nodes
    # A node is idle for Slurm before its pod's readiness is asked for.
    wait_until(lambda: machines(slurm).keys() == slurm.pods().keys(), lambda: f"all are ready: {machines(slurm)}")
    before = machines(slurm)
    worker = next((name for name, on in before.items() if name.startswith("default-") and on == machine), None)
    assert worker is not None, f"workers are spread over the machines: {before}"
    others = {name for name, on in before.items() if on == machine and not name.startswith("default-")}
    with stream_of_jobs(slurm, seed=7) as stream:
        script = "until test -e ~/go; do sleep 0.2; done; echo ended well"
        job = slurm.submit(script, f"-w {worker}", "--time=15", "--output=drained.out")
        wait_until(lambda: slurm.job_state(job) == "RUNNING", f"{job} runs")
        with drain_of(slurm, machine) as running:
            wait_until(
                lambda: len(machines(slurm)) == len(before) - 1 and machine not in machines(slurm).values(),
                lambda: f"all but {worker} are elsewhere: {machines(slurm)}, {others} were on {machine}",
            )
            assert running.poll() is None, "it waits for the job"
            wait_until(lambda: slurm.job_state(job) == "RUNNING", f"{job} runs on")
            accepted = len(stream.accepted)
            wait_until(lambda: len(stream.accepted) > accepted, "slurmctld accepts jobs")
            wait_until(
                lambda: slurm.ssh("touch ~/go", check=False) == "" and slurm.ssh("ls ~/go", check=False) != "", "go"
            )
            printed, _ = running.communicate(timeout=PATIENCE_S)
            assert running.returncode == 0, printed
        slurm.await_job(job)
        assert slurm.ssh("cat drained.out; rm ~/go").strip() == "ended well"
    assert stream.wrong() == {}
    slurm.await_idle("default-0", "default-1")
    # Spread again, for whoever comes next.
    slurm.kubectl.run("delete", "pod", worker, "-n", slurm.namespace)
    slurm.await_idle("default-0", "default-1")
