"""Two controllers on the real local Kubernetes, under a stream of submissions from a login node.

The machines share one file system, as a shared volume of a cloud is one.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from cli.kubectl.client import cluster_labels, in_controller
from cli.kubectl.client import slurm as ask_controller
from slurm.local_cluster import local_directory
from slurm.names import ACTIVE
from tests.e2e.conftest import ENGINES, own_cluster
from tests.e2e.failures import LANE
from tests.e2e.harness import SlurmOnKubernetes, slurmstack, wait_until
from tests.nodes import SHOW, is_idle, node_states
from tests.stacks import dev
from tests.switched_off import switch_off

pytestmark = pytest.mark.disruptive

NAMESPACE = f"e2e-failover-{LANE}".replace("_", "-").rstrip("-")


@pytest.fixture(scope="module")
def pair(local_kubernetes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmOnKubernetes]:
    """One controller first, with a job that waits; then two."""
    sections = dev() | {
        "cluster": {"namespace": NAMESPACE},
        "worker_nodes": {"default": {"size": 1, "resources": {"cpus": 2, "memory": "1Gi", "cpu_request": "10m"}}},
        "accounting": {"enabled": False},
        "health": {"enabled": False},
    }
    with own_cluster(ENGINES[-1], tmp_path_factory.mktemp("failover"), sections, "default-0") as slurm:
        slurm.held = slurm.submit("true", "--hold")  # type: ignore[attr-defined]
        slurm.change("controller.replicas", 2)
        stands_by(slurm)
        yield slurm


def active(slurm: SlurmOnKubernetes) -> str:
    """The pod that slurmctld's Service leads to."""
    return next((name for name, pod in slurm.pods().items() if pod["metadata"]["labels"].get(ACTIVE) == "yes"), "")


def stands_by(slurm: SlurmOnKubernetes, timeout: float = 90) -> str:
    """The active pod, once the other one stands by."""

    def ready() -> bool:
        pods = [pod for name, pod in slurm.pods().items() if name.startswith("controller-")]
        said = [status["ready"] for pod in pods for status in pod["status"].get("containerStatuses", [])]
        return len(pods) == 2 and len(said) == 4 and all(said) and bool(active(slurm))

    wait_until(
        ready, lambda: f"two controllers: {slurm.look('get', 'pods', '-n', NAMESPACE, '-o', 'wide')}", timeout=timeout
    )
    return active(slurm)


def machine(slurm: SlurmOnKubernetes, pod: str) -> str:
    return str(slurm.pods()[pod]["spec"].get("nodeName", ""))


def leave_alone(slurm: SlurmOnKubernetes, on: str) -> None:
    """Have worker and login node on the other machine: what is lost with this one is a controller, and no job."""
    moved = [name for name in ("default-0", "login-0") if machine(slurm, name) == on]
    slurm.kubectl.run("cordon", on)
    try:
        for name in moved:
            slurm.kubectl.run("delete", "pod", name, "-n", NAMESPACE)
        wait_until(
            lambda: slurm.pods().keys() >= {"default-0", "login-0"} and on not in
            {machine(slurm, "default-0"), machine(slurm, "login-0")}, f"{moved} are elsewhere",
        )  # fmt: skip
    finally:
        slurm.kubectl.run("uncordon", on)
    shown = partial(slurm.ssh, SHOW, check=False)
    wait_until(lambda: is_idle(node_states(shown()).get("default-0", frozenset())), lambda: f"it is idle: {shown()}")


def processes(slurm: SlurmOnKubernetes, pod: str, container: str = "slurmctld") -> list[int]:
    """Of a container, as this machine numbers them."""
    status = slurm.pods()[pod]["status"]["containerStatuses"]
    (named,) = [item["containerID"].rpartition("/")[2] for item in status if item["name"] == container]
    found = []
    for path in Path("/proc").glob("[0-9]*/cgroup"):
        with contextlib.suppress(OSError):
            if named in path.read_text():
                found.append(int(path.parent.name))
    return found


class Stream:
    """Submissions of alice, one after the other, by one session; each job leaves its id in a file of hers."""

    def __init__(self, slurm: SlurmOnKubernetes, name: str, at: str = "") -> None:
        """`at`: the address of a login node, where not every way there is sure to last."""
        self.slurm, self.name, self.at = slurm, name, at
        jail = local_directory() / "volumes" / NAMESPACE / "jail/home/alice"
        self.accepted_file, self.ran_file, self.stop = (jail / f"{name}.{what}" for what in ("accepted", "ran", "stop"))
        script = f"echo $SLURM_JOB_ID >>~/{name}.ran"
        self.command = (
            f"until test -e ~/{name}.stop; do began=$(date +%s.%N); "
            f"job=$(timeout 2 sbatch --parsable --output=/dev/null --wrap '{script}') "
            f"&& echo $began $job >>~/{name}.accepted; sleep 0.1; done"
        )

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=lambda: self.slurm.ssh(self.command, at=self.at, check=False))
        thread.start()
        try:
            wait_until(lambda: len(self.accepted()) > 3, "submissions are accepted")
            yield
            time.sleep(1)
        finally:
            self.stop.touch()
            thread.join()

    def accepted(self) -> dict[str, float]:
        """Id -> when its submission began."""
        lines = self.accepted_file.read_text().splitlines() if self.accepted_file.exists() else []
        return {job: float(began) for began, job in map(str.split, lines)}

    def accepted_since(self, moment: float, timeout: float = 60) -> float:
        wait_until(lambda: any(began > moment for began in self.accepted().values()), "accepted again", timeout=timeout)
        return time.time() - moment

    def ran(self) -> list[str]:
        return self.ran_file.read_text().split() if self.ran_file.exists() else []

    def check(self) -> None:
        """Each accepted job has run, and once. What Slurm itself has queued again and holds is released."""

        def all_ran() -> bool:
            asked = ("squeue", "--noheader", "--states=PD", "--format=%A %r")
            lines = in_controller(self.slurm.kubectl, NAMESPACE, *asked).stdout.splitlines()
            for job in (line.split()[0] for line in lines if "launch failed requeued held" in line):
                in_controller(self.slurm.kubectl, NAMESPACE, "scontrol", "release", job)
            return set(self.accepted()) <= set(self.ran())

        # A job whose start was refused, as munge's key had just changed, begins two minutes later.
        wait_until(all_ran, lambda: f"lost: {self.lost()}", timeout=200)
        ran = self.ran()
        assert not (twice := {job for job in ran if ran.count(job) > 1}), twice

    def lost(self) -> str:
        return f"{set(self.accepted()) - set(self.ran())}\n{self.slurm.ssh('squeue; sinfo', check=False)}"


def test_the_active_one_is_killed(pair: SlurmOnKubernetes) -> None:
    """Its container, as when it takes too much memory."""
    stream = Stream(pair, "killed")
    stands_by(pair)
    pids = processes(pair, active(pair))
    with stream.running():
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        killed = time.time()
        stream.accepted_since(killed)
    stream.check()


def test_the_active_one_is_paused_and_wakes(pair: SlurmOnKubernetes) -> None:
    stream = Stream(pair, "paused")
    before = stands_by(pair)
    pids = [pid for name in ("slurmctld", "config-agent") for pid in processes(pair, before, name)]
    with stream.running():
        paused = time.time()
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            stream.accepted_since(paused)
        finally:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
        time.sleep(2)
    stream.check()
    assert active(pair) != before, "the one that woke has taken the Service"
    state = local_directory() / "volumes" / NAMESPACE / "controller-state"
    assert len(list(state.iterdir())) == 1, "the one that woke has written beside the term"


def test_the_machine_of_the_active_one_is_drained(pair: SlurmOnKubernetes) -> None:
    """Of the controllers alone: tests/e2e/test_drained_machines.py has all pods of a cluster moved."""
    stream = Stream(pair, "drained")
    before = stands_by(pair)
    on = machine(pair, before)
    selector = f"--pod-selector=app.kubernetes.io/component=controller,{cluster_labels(NAMESPACE)}"
    drain = ("drain", on, "--ignore-daemonsets", "--delete-emptydir-data", selector, "--timeout=120s")
    with stream.running():
        running = subprocess.Popen([*pair.kubectl.command(), *drain], stdout=subprocess.DEVNULL)
        try:
            wait_until(lambda: active(pair) not in {"", before}, "the other one is active")
            stream.accepted_since(time.time())
            assert running.wait(120) == 0
        finally:
            running.kill()
            pair.kubectl.run("uncordon", on)
    stream.check()


@pytest.mark.timeout(900)
def test_the_machine_of_the_active_one_is_lost_with_its_network(pair: SlurmOnKubernetes) -> None:
    """The bound is that of names: half of all questions go to the lost machine's CoreDNS until Kubernetes knows."""
    before = stands_by(pair)
    lost = machine(pair, before)
    leave_alone(pair, lost)
    assert stands_by(pair) == before
    stream = Stream(pair, "lost", at=pair.pods()["login-0"]["status"]["podIP"])
    with stream.running():
        try:
            switch_off(lost)
            off = time.time()
            wait_until(lambda: active(pair) not in {"", before}, "the other one is active")
            stream.accepted_since(off, timeout=240)
        finally:
            slurmstack("local", "restart-node", lost)
    stands_by(pair, timeout=240)
    stream.check()
    assert active(pair) != before


def test_the_command_finds_the_active_one_and_settings_reach_it(pair: SlurmOnKubernetes) -> None:
    if stands_by(pair) == "controller-0":
        pair.kubectl.run("delete", "pod", "controller-0", "-n", NAMESPACE, "--wait=false")
        wait_until(lambda: active(pair) == "controller-1", "controller-1 is active")
        stands_by(pair)
    pair.change("slurm.settings.KillWait", 31)
    assert "KillWait                = 31 sec" in pair.ssh("scontrol show config | grep KillWait")
    assert ask_controller(pair.kubectl, NAMESPACE, "sinfo", "--noheader", "--format=%N").split() == ["default-0"]


def test_keys_are_rotated_and_both_controllers_have_the_new_ones(pair: SlurmOnKubernetes) -> None:
    def works(token: str) -> bool:
        asked = f"{token} squeue --noheader >/dev/null && echo yes"
        return ask_controller(pair.kubectl, NAMESPACE, "sh", "-c", asked) == "yes\n"

    def token() -> str:
        return ask_controller(pair.kubectl, NAMESPACE, "scontrol", "token", "username=alice").strip()

    stream, before, old = Stream(pair, "rotated"), stands_by(pair), token()
    assert works(old)
    with stream.running():
        for key in ("jwt", "munge"):
            slurmstack("rotate", key, "--yes", "--config", str(pair.file), timeout=300)
            stream.accepted_since(time.time())
    assert stands_by(pair) != before
    assert not works(old)
    assert works(token())
    stream.check()


def test_one_controller_goes_on_with_the_queue_of_two(pair: SlurmOnKubernetes) -> None:
    held = pair.held  # type: ignore[attr-defined]
    pair.change("controller.replicas", 1)
    wait_until(lambda: "controller-1" not in pair.pods(), "the second one is gone")
    # Beside it there may be one whose start munge's new key refused, and whose id nobody was told in time.
    assert held in pair.ssh("squeue --noheader --format=%A").split()
    assert int(pair.submit("true")) > int(held)
