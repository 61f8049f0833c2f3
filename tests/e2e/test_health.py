"""Health on a real Kubernetes: faults drain exactly their node, machines that go take no job with them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from images.common.health.report import measured_in
from images.health.watch.decide import HOLD_SECONDS
from tests.e2e.asking_doctor import findings
from tests.e2e.harness import SlurmOnKubernetes, slurmstack, wait_until
from tests.nodes import LIMIT_S
from tests.stacks import ROOT, with_change
from tests.switched_off import switch_off

INTERVAL = 10
MOVES = 'test -n "$SLURM_RESTART_COUNT" || sleep 300; sleep 15'
"""A job of which the first run lasts longer than all that is waited for until it is requeued; the second one ends."""


def _reason(slurm: SlurmOnKubernetes, node: str) -> str:
    """Why a node is drained; empty if it is not."""
    nodes = json.loads(slurm.slurm("scontrol show nodes --json", check=False) or '{"nodes": []}')["nodes"]
    found: dict[str, Any] = next((item for item in nodes if item["name"] == node), {"state": []})
    return str(found["reason"]) if "DRAIN" in found["state"] else ""


def _await_reason(slurm: SlurmOnKubernetes, node: str, pattern: str) -> None:
    """Wait until the reason matches; an empty pattern: until the node is not drained, for which it may have to wait."""

    def found() -> bool:
        reason = _reason(slurm, node)
        return bool(re.search(pattern, reason)) if pattern else not reason

    wait_until(found, f"{node} is drained for {pattern!r}", timeout=LIMIT_S if pattern else HOLD_SECONDS + LIMIT_S)


def _table(slurm: SlurmOnKubernetes) -> dict[str, Any]:
    """What `slurmstack health --json` says, by name of the node."""
    done = slurmstack("health", "--json", "--config", str(slurm.file), check=False)
    assert done.returncode in {0, 1}, done.stdout + done.stderr
    return {node["name"]: node for node in json.loads(done.stdout)["nodes"]}


def _machine(slurm: SlurmOnKubernetes, pod: str) -> str:
    return str(slurm.pods()[pod]["spec"].get("nodeName", ""))


@pytest.fixture(scope="module")
def healthy(slurm: SlurmOnKubernetes) -> Iterator[SlurmOnKubernetes]:
    """The cluster with a shorter interval, jobs that are moved 5 s after their machine is wanted free, and broken
    machines that are released for replacement.
    """
    before = slurm.sections
    machines = {"requeue_after": 5, "release": "cordon", "release_after": 0}
    slurm.sections = with_change(before, "slurm.settings.HealthCheckInterval", INTERVAL)
    slurm.change("health", {"machines": machines})
    slurm.await_idle("default-0", "default-1")
    yield slurm
    for machine in ("node-0", "node-1"):
        slurm.kubectl.run("uncordon", machine, check=False)
    slurm.sections = before
    slurm.up()


def test_the_command_shows_all_nodes(healthy: SlurmOnKubernetes) -> None:
    def table() -> dict[str, str]:
        return {name: node["health"] for name, node in _table(healthy).items()}

    wait_until(
        lambda: table() == {"default-0": "well", "default-1": "well"}, lambda: f"all are well: {_table(healthy)}"
    )
    shown = slurmstack("health", "--config", str(healthy.file)).stdout
    assert "2 nodes: 2 well, 0 failing, 0 unknown" in shown


WORKERS = ("default-0", "default-1")
UNSEAL = "mount -o remount,bind,rw /"
"""A worker's root file system is read-only; an administrator may still write there, and so may these tests."""


class FakeGpus:
    """A program plays nvidia-smi, and the settings of the checks say that each worker should have a GPU.

    `slurm.up()` brings the settings of the stack file back.
    """

    def __init__(self, slurm: SlurmOnKubernetes) -> None:
        self._slurm = slurm
        self._lines = (ROOT / "tests/unit/images/health/data/nvidia/h100-8.csv").read_text().splitlines()
        tool = "#!/usr/bin/python3\n" + (ROOT / "tests/fakes/gpu_tools.py").read_text()
        for node in WORKERS:
            self._write(node, "/usr/local/bin/nvidia-smi", tool)
            self.set(node, there=True)
        self._change_settings(json.dumps({"pools": {"default": {"gpus": 1}}}))

    def set(self, node: str, *, there: bool) -> None:
        """Whether nvidia-smi of a node shows its GPU from now on."""
        self._write(node, "/run/fake-gpus/gpus.csv", "\n".join(self._lines[: 1 + there]) + "\n")

    def _write(self, pod: str, path: str, text: str) -> None:
        """Put a program or file into a worker."""
        slurm = self._slurm
        script = (
            f"{UNSEAL} && mkdir -p $(dirname {path}); cat > {path}.new && chmod 755 {path}.new && mv {path}.new {path}"
        )
        slurm.kubectl.run(
            "exec", "-i", "-n", slurm.namespace, pod, "-c", "slurmd", "--", "sh", "-c", script, stdin=text
        )

    def _change_settings(self, settings: str) -> None:
        slurm = self._slurm
        patch = json.dumps({"data": {"settings.json": settings}})
        slurm.kubectl.run("patch", "configmap", "health-settings", "-n", slurm.namespace, "-p", patch)
        for pod in WORKERS:  # a change of the pod makes kubelet look at its files at once
            slurm.kubectl.run("annotate", "pod", pod, "-n", slurm.namespace, "--overwrite", "slurmstack/test=looked")


def _released_for(slurm: SlurmOnKubernetes, machine: str) -> str | None:
    """The fault for which the watcher has cordoned a machine; None if it has not, or it is well again."""
    (node,) = (item for item in slurm.kubectl.items("nodes") if item["metadata"]["name"] == machine)
    found: dict[str, str] = node["metadata"].get("annotations", {})
    return found.get("slurmstack/released-for")


def _job_on(slurm: SlurmOnKubernetes, node: str, script: str = MOVES) -> str:
    """A job that runs on a node without having asked for it, so that it may go on on the other one."""
    other = "default-1" if node == "default-0" else "default-0"
    slurm.slurm(f"scontrol update nodename={other} state=drain reason=test")
    job = slurm.submit(script, "--requeue")
    slurm.await_job(job, "RUNNING")
    slurm.slurm(f"scontrol update nodename={other} state=resume")
    assert slurm.job_field(job, "NodeList") == node
    return job


def _await_move(slurm: SlurmOnKubernetes, job: str, node: str) -> None:
    """Wait until a job was requeued, and runs on that node."""

    def requeued() -> bool:  # counted at once, but queued again only when its first run has been cleaned up
        return slurm.job_field(job, "Restarts") == "1" and slurm.job_state(job) == "PENDING"

    wait_until(requeued, f"job {job} is requeued")
    slurm.run_now(job)
    slurm.await_job(job, "RUNNING")
    assert slurm.job_field(job, "NodeList") == node


@pytest.mark.disruptive
def test_a_lost_gpu_drains_its_node_alone_and_jobs_go_on_elsewhere(healthy: SlurmOnKubernetes) -> None:
    slurm = healthy
    gpus = FakeGpus(slurm)
    try:
        wait_until(
            lambda: all("gpu-presence" in node["results"] for node in _table(slurm).values()),
            "the checks have their new settings",
        )  # fmt: skip
        assert not _reason(slurm, "default-0")
        job, machine = _job_on(slurm, "default-0"), _machine(slurm, "default-0")
        gpus.set("default-0", there=False)
        _await_reason(slurm, "default-0", r"^health/gpu-presence \[hardware\]: 0 of 1 GPUs")
        assert not _reason(slurm, "default-1")
        assert _table(slurm)["default-0"]["drained_for"] == "gpu-presence"
        _await_move(slurm, job, "default-1")
        slurm.await_job(job)
        assert slurm.ssh("srun hostname").strip() == "default-1"
        wait_until(lambda: _released_for(slurm, machine) == "health/gpu-presence", f"{machine} is cordoned")
        gpus.set("default-0", there=True)
        wait_until(
            lambda: _table(slurm)["default-0"]["results"]["gpu-presence"]["status"] == "ok", "the GPU is found again"
        )  # fmt: skip
        assert _reason(slurm, "default-0"), "its machine is cordoned"
        slurm.kubectl.run("uncordon", machine)  # by whoever has mended it
        _await_reason(slurm, "default-0", "")
        wait_until(lambda: _released_for(slurm, machine) is None, f"the fault of {machine} is forgotten")
    finally:
        slurm.up()  # the settings of the stack file


def test_nodes_are_measured_by_jobs_that_users_never_wait_for(healthy: SlurmOnKubernetes) -> None:
    slurm = healthy
    tests = {"enabled": True, "run": ["cpu-speed", "filesystem-throughput"]}
    tests |= {"expected": {"default": {"cpu-speed": {"events": 1}}}}
    before = slurm.sections["health"]
    slurm.change("health", {**before, "tests": tests})

    def results(node: str) -> dict[str, str]:
        extra = slurm.slurm(f"scontrol show node {node} | grep -F Extra=", check=False)
        found = measured_in(extra.strip().removeprefix("Extra="))
        return {name: f"{record.result.status.value}: {record.result.message}" for name, record in found.items()}

    try:
        for node in ("default-0", "default-1"):
            wait_until(lambda: len(results(node)) == 2, f"both tests have run on {node}")  # noqa: B023
            found = results(node)
            assert re.match(r"ok: events [0-9.]+ events/s", found["cpu-speed"]), found
            # Nothing is known to be expected of this machine's disk: the figure is told, and nothing follows.
            assert re.match(
                r"not checked: write [0-9.]+ MB/s, read [0-9.]+ MB/s; nothing", found["filesystem-throughput"]
            )
        assert not _reason(slurm, "default-0")
        assert not _reason(slurm, "default-1")
    finally:
        slurm.change("health", before)


@pytest.mark.disruptive
def test_a_cordoned_machine_is_drained_and_its_jobs_move_until_it_is_uncordoned(healthy: SlurmOnKubernetes) -> None:
    slurm = healthy
    machine = _machine(slurm, "default-0")
    if machine == _machine(slurm, "default-1"):
        pytest.fail("both workers are on one machine")
    job = _job_on(slurm, "default-0")
    slurm.kubectl.run("cordon", machine)
    try:
        _await_reason(slurm, "default-0", rf"^health/kubernetes \[node\]: machine {machine} is cordoned")
        _await_move(slurm, job, "default-1")
    finally:
        slurm.kubectl.run("uncordon", machine)
    _await_reason(slurm, "default-0", "")
    slurm.await_job(job)


@pytest.mark.disruptive
@pytest.mark.parametrize("what", ["is not heard of by Kubernetes", "is gone from Kubernetes"])
def test_a_lost_machine_s_jobs_start_elsewhere(healthy: SlurmOnKubernetes, what: str) -> None:
    slurm = healthy
    worker = "default-1" if _machine(slurm, "controller-0") == _machine(slurm, "default-0") else "default-0"
    other = "default-0" if worker == "default-1" else "default-1"
    machine = _machine(slurm, worker)
    assert machine != _machine(slurm, "controller-0")
    job = _job_on(slurm, worker, "sleep 300")
    switch_off(machine)
    try:
        if "gone" in what:
            slurm.kubectl.run("delete", "node", machine)
        # Looked at first: Kubernetes soon starts the worker of a machine that is gone on another one.
        _await_reason(slurm, worker, rf"^health/kubernetes \[node\]: machine {machine} {what}")
        if "gone" not in what:
            said = [item["cause"] for item in findings(slurm)]
            assert f"the Kubernetes machine {machine} is not ready: its kubelet does not report" in said
        _await_move(slurm, job, other)
        slurm.slurm(f"scancel {job}")
    finally:
        slurmstack("local", "restart-node", machine)
    _await_reason(slurm, worker, "")
    if _machine(slurm, worker) != machine:  # the tests that follow expect a worker on each machine
        slurm.kubectl.run("delete", "pod", worker, "-n", slurm.namespace)
        wait_until(lambda: worker in slurm.pods() and _machine(slurm, worker) == machine, f"{worker} is on {machine}")
    slurm.await_idle("default-0", "default-1")
