"""The contract about failures, `failures.md`: each of its sentences is a function here."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from cli.kubectl.client import is_true
from local import addresses, namespaces, processes
from tests.e2e.harness import SlurmOnKubernetes, slurmstack, wait_until
from tests.switched_off import switch_off

pytestmark = pytest.mark.failures

CONTRACT = Path(__file__).with_name("failures.md").read_text(encoding="utf-8")
ROWS = [
    (when.strip(), [then.strip() for then in thens.split(", and ")])
    for _, when, thens, _ in (line.split("|") for line in CONTRACT.splitlines() if line.startswith("|"))
][2:]
SHUTDOWN = "node.cloudprovider.kubernetes.io/shutdown=:NoSchedule"
TICKS = "while true; do date +%s >>ticks; sleep 1; done"


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
    undo: Callable[[], object] = lambda: None
    """Ends what keeps the machine from being heard."""

    def machine_now(self) -> str:
        """Where slurmctld's pod is."""
        return str(self.slurm.pods()["controller-0"]["spec"].get("nodeName", ""))

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
    return lambda do: WHENS.setdefault(sentence, do)


def then(sentence: str) -> Callable[[When], When]:
    """What a user or an operator notices."""
    return lambda check: THENS.setdefault(sentence, check)


@pytest.fixture
def case(two_nodes: SlurmOnKubernetes) -> Iterator[Case]:
    slurm = two_nodes
    _spread(slurm)
    pods = slurm.pods()
    machine = pods["controller-0"]["spec"]["nodeName"]
    apart, login = (
        next(name for name in (f"{of}-0", f"{of}-1") if pods[name]["spec"]["nodeName"] != machine)
        for of in ("default", "login")
    )
    held = slurm.submit("true", "--hold")
    running = slurm.submit(f"rm -f ticks; {TICKS}", f"--nodelist={apart}", "--no-requeue")
    slurm.await_job(running, "RUNNING")
    slurm.await_saved()
    case = Case(slurm=slurm, machine=machine, running=running, held=held, at=pods[login]["status"]["podIP"])
    yield case
    _back_to_normal(case)
    slurm.slurm(f"scancel {running} {held}")


def _spread(slurm: SlurmOnKubernetes) -> None:
    """A worker and a login node on each machine: those of a machine that was lost have gone to the other one."""

    def on(name: str) -> str:
        return str(slurm.pods()[name]["spec"].get("nodeName"))

    for of in ("default", "login"):
        if on(f"{of}-0") == on(f"{of}-1"):
            slurm.kubectl.run("delete", "pod", f"{of}-1", "-n", slurm.namespace)
            wait_until(lambda of=of: is_true(slurm.pods().get(f"{of}-1", {}), "Ready"), f"{of}-1 is back")  # type: ignore[misc]
            assert on(f"{of}-0") != on(f"{of}-1")
    slurm.await_idle("default-0", "default-1")


@pytest.mark.parametrize(("happens", "follows"), ROWS, ids=[row[0].replace(" ", "-") for row in ROWS])
def test_what_a_failure_costs(happens: str, follows: list[str], case: Case) -> None:
    WHENS[happens](case)
    for sentence in follows:
        THENS[sentence](case)
    _back_to_normal(case)
    _nothing_is_lost(case)


def test_every_sentence_is_run() -> None:
    assert {row[0] for row in ROWS} == WHENS.keys()
    assert {sentence for row in ROWS for sentence in row[1]} == THENS.keys()


def _back_to_normal(case: Case) -> None:
    """What a person does in the end, where a machine is still off."""
    case.undo()
    if not processes.is_running(f"kubelet-{case.machine}"):
        slurmstack("local", "restart-node", case.machine)
    case.slurm.kubectl.run("taint", "node", case.machine, f"{SHUTDOWN.partition('=')[0]}-", check=False)
    wait_until(lambda: case.is_ready(case.machine), "the machine is back")
    wait_until(case.answers, "slurmctld answers in the end")


def _nothing_is_lost(case: Case) -> None:
    slurm = case.slurm
    ticks = case.user("cat ticks", check=True).split()
    wait_until(lambda: case.user("cat ticks").split()[len(ticks) :], "the job runs on")
    assert (slurm.job_state(case.running), slurm.job_field(case.running, "Restarts")) == ("RUNNING", "0")
    assert slurm.job_field(case.held, "JobState") == "PENDING"
    wait_until(lambda: {"default-0", "default-1"} <= set(slurm.nodes()), "both nodes are known")
    slurm.slurm(f"scancel {case.running}")
    slurm.await_idle("default-0", "default-1")
    new = slurm.submit("srun hostname", "--nodes=2")
    assert int(new) > max(int(case.running), int(case.held))
    slurm.await_job(new)


@when("slurmctld's process is killed")
def _(case: Case) -> None:
    _kill(case, "controller-0", "slurmctld")


def _kill(case: Case, pod: str, program: str) -> None:
    """A pod's program, whose first process no signal from inside would end."""
    uid, killed = case.slurm.pod_uids()[pod], 0
    for pid in processes.living("node-0", "node-1"):
        place, name = (Path(f"/proc/{pid}/{file}").read_text(encoding="ascii") for file in ("cgroup", "comm"))
        if name.strip() == program and uid in place.replace("_", "-"):
            os.kill(pid, signal.SIGKILL)
            killed += 1
    assert killed, f"no {program} in {pod}"


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
def _(case: Case) -> None:
    _lose(case)


def _lose(case: Case) -> None:
    switch_off(case.machine)
    wait_until(lambda: not case.is_ready(case.machine), "Kubernetes has noticed")


@when("the controller's machine is paused for minutes")
def _(case: Case) -> None:
    """As a hypervisor does that moves it, or has no memory: all of its processes, and kubelet's, at one moment."""
    daemons = [f"daemons/{component}-{case.machine}" for component in ("containerd", "kubelet", "kube-proxy")]
    paused = processes.living(case.machine, *daemons)
    case.undo = lambda: subprocess.run(["kill", "-CONT", *map(str, paused)], check=False)
    for pid in paused:
        os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: not case.is_ready(case.machine), "Kubernetes has noticed")


@when("the controller's machine is cut off from the API server")
def _(case: Case) -> None:
    route = ("blackhole", f"{addresses.from_environment().control_plane}/32")
    inside = [*namespaces.enter(case.machine, with_mounts=False), "ip", "route"]
    case.undo = lambda: subprocess.run([*inside, "del", *route], check=False)
    subprocess.run([*inside, "add", *route], check=True)
    wait_until(lambda: not case.is_ready(case.machine), "Kubernetes has noticed")


@when("the API server is away")
def _(case: Case) -> None:
    case.undo = lambda: slurmstack("local", "up")
    processes.stop("kube-apiserver")


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
    case.undo()
    wait_until(case.answers, "slurmctld answers")


@then("slurmctld answers again, on the other machine")
def _(case: Case) -> None:
    wait_until(case.answers, "slurmctld answers")
    assert case.machine_now() != case.machine


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
