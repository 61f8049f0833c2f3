"""The contract about failures, `failures.md`, is run: row by row on a cluster of its own for each of its tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.kubectl.client import is_true
from local import processes
from slurm.local_cluster import local_directory
from slurm.names import CONTROLLER
from tests.e2e.conftest import ENGINES, own_cluster
from tests.e2e.failing import SHUTDOWN, THENS, WHENS, Case
from tests.e2e.harness import SlurmOnKubernetes, slurmstack, wait_until
from tests.e2e.pod_processes import pids_of
from tests.e2e.state_volume import StateVolume
from tests.stacks import dev

pytestmark = pytest.mark.failures

Row = tuple[str, list[str]]
CONTRACT = Path(__file__).with_name("failures.md").read_text(encoding="utf-8")


def _rows(given: str) -> list[Row]:
    """Of the table below what is given."""
    table = CONTRACT.partition(given)[2].partition("\n\n")[2].partition("\n\n")[0]
    cells = [line.split("|") for line in table.splitlines()[2:]]
    return [(when.strip(), [then.strip() for then in thens.split(", and ")]) for _, when, thens, _ in cells]


ONE, TWO = _rows("Given two machines"), _rows("Given the same with a controller that stands by")
TICKS = "while true; do date +%s >>ticks; sleep 1; done"


def _with_jobs(slurm: SlurmOnKubernetes, state: StateVolume | None = None) -> Iterator[Case]:
    _spread(slurm)
    pods = slurm.pods()
    machine = pods[next(iter(slurm.active()), "controller-0")]["spec"]["nodeName"]
    apart, login = (
        next(name for name in (f"{of}-0", f"{of}-1") if pods[name]["spec"]["nodeName"] != machine)
        for of in ("default", "login")
    )
    held = slurm.submit("true", "--hold")
    running = slurm.submit(f"rm -f ticks; {TICKS}", f"--nodelist={apart}", "--no-requeue")
    slurm.await_job(running, "RUNNING")
    slurm.await_saved()
    at = pods[login]["status"]["podIP"]
    case = Case(slurm=slurm, machine=machine, running=running, held=held, at=at, state=state, turn=slurm.turn())
    yield case
    _back_to_normal(case)
    slurm.slurm(f"scancel {running} {held}")


@pytest.fixture
def case(two_nodes: SlurmOnKubernetes) -> Iterator[Case]:
    yield from _with_jobs(two_nodes)


@pytest.fixture(scope="module")
def state(local_kubernetes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StateVolume]:
    directory = local_directory() / "volumes/e2e-failures/controller-state"
    with StateVolume(directory, tmp_path_factory.mktemp("state") / "image") as volume:
        yield volume


@pytest.fixture(scope="module")
def two(state: StateVolume, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmOnKubernetes]:
    """A cluster with a controller that stands by. slurmctld has saved what it knows of accounts, as each does after
    five minutes: else a new one waits for slurmdbd, which may be lost with its machine.
    """
    sections = dev() | {
        "cluster": {"namespace": "e2e-failures"},
        "controller": {"storage": "1Gi", "access_mode": "ReadWriteMany", "standby": True},
    }
    directory = tmp_path_factory.mktemp("failures")
    with own_cluster(ENGINES[0], directory, sections, "default-0", "default-1") as slurm:
        slurm.slurm("scontrol reconfigure")
        wait_until(lambda: slurm.saved("assoc_mgr_state"), "slurmctld has saved what it knows of accounts")
        yield slurm
        state.let_go()


@pytest.fixture
def case_of_two(two: SlurmOnKubernetes, state: StateVolume) -> Iterator[Case]:
    slurmstack("local", "up")
    wait_until(lambda: len(_ready(two)) == 2, "one is active, and one stands by")
    yield from _with_jobs(two, state)


def _ready(slurm: SlurmOnKubernetes) -> list[str]:
    """Controllers."""
    pods = {name: pod for name, pod in slurm.pods().items() if name.startswith(f"{CONTROLLER}-")}
    return [name for name, pod in pods.items() if is_true(pod, "Ready") and "deletionTimestamp" not in pod["metadata"]]


def _spread(slurm: SlurmOnKubernetes) -> None:
    """One of each on each machine: those of a machine that was lost have gone to the other one."""

    def on(name: str) -> str:
        return str(slurm.pods()[name]["spec"].get("nodeName"))

    of_two = [CONTROLLER] if f"{CONTROLLER}-1" in slurm.pods() else []
    for of in ("default", "login", *of_two):
        if on(f"{of}-0") == on(f"{of}-1"):
            moved = next(f"{of}-{number}" for number in (1, 0) if f"{of}-{number}" not in slurm.active())
            slurm.kubectl.run("delete", "pod", moved, "-n", slurm.namespace)
            wait_until(lambda name=moved: is_true(slurm.pods().get(name, {}), "Ready"), f"{moved} is back")  # type: ignore[misc]
            assert on(f"{of}-0") != on(f"{of}-1")
    slurm.await_idle("default-0", "default-1")


def _run(row: Row, case: Case) -> None:
    happens, follows = row
    WHENS[happens](case)
    for sentence in follows:
        THENS[sentence](case)
    _back_to_normal(case)
    _nothing_is_lost(case)


@pytest.mark.parametrize("row", ONE, ids=[row[0].replace(" ", "-") for row in ONE])
def test_what_a_failure_costs(row: Row, case: Case) -> None:
    _run(row, case)


@pytest.mark.standby
@pytest.mark.parametrize("row", TWO, ids=[row[0].replace(" ", "-") for row in TWO])
def test_what_a_failure_costs_with_a_standby(row: Row, case_of_two: Case) -> None:
    _run(row, case_of_two)


def test_every_sentence_is_run() -> None:
    assert {row[0] for row in [*ONE, *TWO]} == WHENS.keys()
    assert {sentence for row in [*ONE, *TWO] for sentence in row[1]} == THENS.keys()


def _back_to_normal(case: Case) -> None:
    """What a person does in the end, where a machine is still off."""
    case.end()
    if not processes.is_running(f"kubelet-{case.machine}"):
        slurmstack("local", "restart-node", case.machine)
    case.slurm.kubectl.run("taint", "node", case.machine, f"{SHUTDOWN.partition('=')[0]}-", check=False)
    wait_until(lambda: case.is_ready(case.machine), "the machine is back")
    # One that was to leave the machine does so now, and another one comes.
    wait_until(lambda: len(_ready(case.slurm)) == (1 if case.state is None else 2), "all controllers are ready")
    wait_until(case.answers, "slurmctld answers in the end")


def _nothing_is_lost(case: Case) -> None:
    slurm = case.slurm
    ticks = case.user("cat ticks", check=True).split()
    wait_until(lambda: case.user("cat ticks").split()[len(ticks) :], "the job runs on")
    assert (slurm.job_state(case.running), slurm.job_field(case.running, "Restarts")) == ("RUNNING", "0")
    assert slurm.job_field(case.held, "JobState") == "PENDING"
    controllers = [uid for name, uid in slurm.pod_uids().items() if name.startswith(f"{CONTROLLER}-")]
    wait_until(lambda: len(pids_of("slurmctld", controllers)) == 1, "one slurmctld runs")
    wait_until(lambda: {"default-0", "default-1"} <= set(slurm.nodes()), "both nodes are known")
    slurm.slurm(f"scancel {case.running}")
    slurm.await_idle("default-0", "default-1")
    new = slurm.submit("srun hostname", "--nodes=2")
    assert int(new) > max(int(case.running), int(case.held))
    slurm.await_job(new)
