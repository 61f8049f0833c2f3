"""The sentences of the contract about failures, `failures.md`: each is a function here."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Network
from pathlib import Path

from cli.kubectl.client import is_true
from images.controller.epochs import LIMIT_SECONDS, MARGIN_SECONDS
from local import addresses, namespaces, processes
from slurm.names import CONTROLLER_HOST
from tests.e2e.asking_doctor import findings
from tests.e2e.harness import SlurmOnKubernetes, slurmstack, wait_until
from tests.e2e.pod_processes import pids_of
from tests.e2e.state_volume import StateVolume
from tests.switched_off import switch_off

SHUTDOWN = "node.cloudprovider.kubernetes.io/shutdown=:NoSchedule"


@dataclass(kw_only=True)
class Case:
    """A cluster, and what is to be found again in it."""

    slurm: SlurmOnKubernetes
    machine: str
    """slurmctld's."""
    running: str
    held: str
    at: str
    """Address of the login node on the other machine. This machine's way to Services is by one of the two."""
    state: StateVolume | None = None
    """With a standby: the volume that both controllers have."""
    turn: str = ""
    """With a standby: the directory that the volume's last turn has made."""
    undo: Callable[[], object] = lambda: None
    """Ends what was done, where that lasts."""

    @property
    def controller(self) -> str:
        """slurmctld's pod."""
        return next(iter(self.slurm.active()), CONTROLLER_HOST)

    def machine_now(self) -> str:
        """Where that is."""
        return str(self.slurm.pods()[self.controller]["spec"].get("nodeName", ""))

    @property
    def volume(self) -> StateVolume:
        assert self.state is not None, "only with a standby"
        return self.state

    def end(self) -> None:
        """Undo what lasts, once."""
        undo, self.undo = self.undo, lambda: None
        undo()

    def user(self, command: str, *, check: bool = False) -> str:
        """What a command prints on that login node."""
        return self.slurm.ssh(command, at=self.at, check=check)

    def answers(self) -> bool:
        """Whether slurmctld takes a user's command."""
        return self.held in self.user("timeout 5 squeue --noheader --format=%A").split()

    def is_ready(self, machine: str) -> bool:
        """Whether Kubernetes hears of a machine."""
        return is_true(self.slurm.kubectl.items("node", machine)[0], "Ready")


When = Callable[[Case], None]
WHENS: dict[str, When] = {}
THENS: dict[str, When] = {}


def when(sentence: str) -> Callable[[When], When]:
    """What happens."""
    return partial(_note, WHENS, sentence)


def then(sentence: str) -> Callable[[When], When]:
    """What a user or an operator notices."""
    return partial(_note, THENS, sentence)


def _note(among: dict[str, When], sentence: str, does: When) -> When:
    among[sentence] = does
    return does


@when("slurmctld's process is killed")
def _(case: Case) -> None:
    _kill(case, case.controller, "slurmctld")


def _kill(case: Case, pod: str, program: str) -> None:
    """A pod's program, whose first process no signal from inside would end."""
    pids = pids_of(program, [case.slurm.pod_uids()[pod]])
    assert pids, f"no {program} in {pod}"
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


@when("the controller's pod is deleted")
def _(case: Case) -> None:
    case.slurm.kubectl.run("delete", "pod", "controller-0", "-n", case.slurm.namespace, "--wait=false")


@when("the controller's machine is off, and its Node is deleted")
def _(case: Case) -> None:
    _lose(case)
    case.slurm.kubectl.run("delete", "node", case.machine)


@when("the controller's machine is off, and the cloud's controller says so")
def _(case: Case) -> None:
    _lose(case)
    case.slurm.kubectl.run("taint", "node", case.machine, SHUTDOWN)


@when("the controller's machine is off, and nobody says so")
@when("the active controller's machine is off")
def _(case: Case) -> None:
    _lose(case)


def _lose(case: Case) -> None:
    switch_off(case.machine)
    wait_until(lambda: not case.is_ready(case.machine), "Kubernetes has noticed")


@when("the controller's machine is paused for minutes")
@when("the active controller's machine is paused")
def _(case: Case) -> None:
    """As a hypervisor does that moves it, or has no memory: all of its processes, and kubelet's, at one moment.

    Nor does its kernel answer any more, which goes on here: so its cable is out, too.
    """
    daemons = [f"daemons/{component}-{case.machine}" for component in ("containerd", "kubelet", "kube-proxy")]
    paused = processes.living(case.machine, *daemons)
    cable = ["ip", "link", "set", case.machine.replace("node-", "slurmstack-n")]

    def undo() -> None:
        subprocess.run([*cable, "up"], check=False)
        subprocess.run(["kill", "-CONT", *map(str, paused)], check=False)

    case.undo = undo
    for pid in paused:
        os.kill(pid, signal.SIGSTOP)
    subprocess.run([*cable, "down"], check=True)
    wait_until(lambda: not case.is_ready(case.machine), "Kubernetes has noticed")


@when("the controller's machine is cut off from the API server")
def _(case: Case) -> None:
    route = ("blackhole", f"{addresses.from_environment().control_plane}/32")
    inside = [*namespaces.enter(case.machine, with_mounts=False), "ip", "route"]
    case.undo = lambda: subprocess.run([*inside, "del", *route], check=False)
    subprocess.run([*inside, "add", *route], check=True)
    wait_until(lambda: not case.is_ready(case.machine), "Kubernetes has noticed")


@when("the controllers' machines are cut off from each other")
def _(case: Case) -> None:
    """Their pods', too: halves of a range come before the route to all of it."""
    other = 1 - int(case.machine.rpartition("-")[2])
    pods = [str(half) for half in IPv4Network(addresses.from_environment().pods_of(other)).subnets()]
    routes = [f"{addresses.from_environment().node(other)}/32", *pods]
    inside = [*namespaces.enter(case.machine, with_mounts=False), "ip", "route"]
    case.undo = lambda: [subprocess.run([*inside, "del", "blackhole", route], check=False) for route in routes]
    for route in routes:
        subprocess.run([*inside, "add", "blackhole", route], check=True)


@when("the API server is away for a while")
def _(case: Case) -> None:
    WHENS["the API server is away"](case)
    time.sleep(60)


@when("the API server is away")
def _(case: Case) -> None:
    case.undo = lambda: slurmstack("local", "up")
    processes.stop("kube-apiserver")


@when("the active controller's machine is cut off from the state volume")
def _(case: Case) -> None:
    name = case.controller
    (pid,) = pids_of("slurmctld", [case.slurm.pod_uids()[name]])
    case.volume.cut_off(case.machine, pid)

    def undo() -> None:
        case.volume.reach_again(case.machine)
        case.slurm.lose_pods(name)

    case.undo = undo


@when("the state volume hangs for half a minute")
def _(case: Case) -> None:
    case.volume.hang(30)
    (pid,) = pids_of("slurmctld", [case.slurm.pod_uids()[case.controller]])
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), "slurmctld was ended")


@when("the state volume is full")
def _(case: Case) -> None:
    case.undo = case.volume.free
    case.volume.fill()


@when("slurmctld's process is killed while the state volume is full")
def _(case: Case) -> None:
    case.undo = case.volume.free
    case.volume.fill()
    _kill(case, case.controller, "slurmctld")


@when("the database is killed while records are written")
def _(case: Case) -> None:
    case.slurm.submit("true", "--array=1-40", "--job-name=recorded")
    _kill(case, "database-0", "mariadbd")


@when("slurmdbd is away while jobs begin and end")
def _(case: Case) -> None:
    slurm = case.slurm
    slurm.kubectl.run("scale", "statefulset", "slurmdbd", "-n", slurm.namespace, "--replicas=0")
    wait_until(lambda: "slurmdbd-0" not in slurm.pods(), "slurmdbd is away")
    job = slurm.submit("true", "--array=1-40", "--job-name=recorded")
    wait_until(lambda: not slurm.slurm(f"squeue --noheader --jobs={job}", check=False).strip(), "all have ended")
    slurm.kubectl.run("scale", "statefulset", "slurmdbd", "-n", slurm.namespace, "--replicas=1")


@then("slurmctld answers again")
def _(case: Case) -> None:
    case.end()
    wait_until(case.answers, "slurmctld answers")


@then("no controller changes its role")
def _(case: Case) -> None:
    """For longer than the other one would wait."""
    time.sleep(2 * (LIMIT_SECONDS + MARGIN_SECONDS))
    assert case.slurm.turn() == case.turn


@then("jobs are refused")
def _(case: Case) -> None:
    said = case.user("sbatch --wrap true 2>&1")
    assert "I/O error writing script/environment to file" in said, said


@then("doctor says why")
def _(case: Case) -> None:
    wait_until(
        lambda: any("is full" in item["cause"] for item in findings(case.slurm)),
        lambda: f"doctor says it: {findings(case.slurm)}",
    )


@then("slurmctld answers again, on the other machine")
def _(case: Case) -> None:
    wait_until(lambda: case.answers() and case.machine_now() != case.machine, "slurmctld answers there")


@then("no other slurmctld is started meanwhile")
def _(case: Case) -> None:
    """Until long after its pod was to go."""
    pod = case.slurm.pods()["controller-0"]["metadata"]
    wait_until(
        lambda: "deletionTimestamp" in case.slurm.pods()["controller-0"]["metadata"], "its pod is to leave the machine"
    )
    time.sleep(30)
    assert case.slurm.pods()["controller-0"]["metadata"]["uid"] == pod["uid"]


@then("users submit jobs meanwhile")
def _(case: Case) -> None:
    ran = case.user("sbatch --wait --quiet --output=meanwhile --wrap 'echo ran' && cat meanwhile", check=True)
    assert ran.strip() == "ran"


@then("all records come")
def _(case: Case) -> None:
    shown = "sacct --noheader --allocations --parsable2 --name=recorded --starttime=now-1hour --format=State"
    wait_until(
        lambda: case.slurm.slurm(shown, check=False).split().count("COMPLETED") >= 40,
        lambda: f"all records are there: {case.slurm.slurm(shown, check=False).split()}",
    )
