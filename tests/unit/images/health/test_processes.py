"""Processes that should not be there: counted as the kernel lists them, and Slurm is asked only about suspects."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from images.common.command import NO_PROGRAM, TIMED_OUT
from images.common.command import Result as Ended
from images.health.checks import processes
from images.health.contract import Node, Result, Status, Thresholds
from tests.unit.images.fakes import FakeRunner
from tests.unit.images.health.places import make_node, write

KERNEL_THREAD = 0x00200000
STAT = (
    "{pid} ({name}) {state} {parent} {pid} {pid} 0 -1 {flags} 5138 1219 11 6 {ticks} 3 2 1 20 0 4 0 {start} 344260608 "
    "2265 18446744073709551615 94560583592984 94560583613865 140731015459504 0 0 0 0 4096 81998 0 0 0 17 1 0 0 0 0 0 "
    "94560583629872 94560583631488 94561213317120 140731015465667 140731015465687 140731015465687 140731015466987 0\n"
)
"""A line of /proc/PID/stat as Linux 6.18 writes it."""


def spawn(
    node: Node,
    pid: int,
    name: str,
    *,
    state: str = "S",
    parent: int = 7,
    ticks: int = 2,
    start: int = 4064841,
    flags: int = 4194560,
    title: str = "",
    user: int = 0,
) -> None:
    directory = node.root / "proc" / str(pid)
    text = STAT.format(pid=pid, name=name, state=state, parent=parent, flags=flags, ticks=ticks, start=start)
    write(directory / "stat", text)
    write(directory / "cmdline", f"{title or name}\0")
    write(directory / "status", f"Name:\t{name}\nUid:\t{user}\t{user}\t{user}\t{user}\n")


def end(node: Node, pid: int) -> None:
    shutil.rmtree(node.root / "proc" / str(pid))


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """An idle worker: tini, slurmd, and what is not a process."""
    node = make_node(tmp_path)
    spawn(node, 1, "tini", parent=0)
    spawn(node, 7, "slurmd", parent=1)
    write(node.root / "proc/meminfo", "MemTotal: 1 kB\n")
    return node


def check(
    node: Node, at: float = 1000.0, squeue: Ended | None = None, **thresholds: float
) -> tuple[Result, FakeRunner]:
    runner = FakeRunner({"squeue": squeue or Ended(code=0)})
    return processes.run(node, runner, Thresholds({"processes": thresholds}), clock=lambda: at), runner


def later(node: Node, squeue: Ended | None = None) -> Result:
    """Five runs, half a minute apart."""
    return [check(node, 1000.0 + 30 * run, squeue)[0] for run in range(5)][-1]


def test_an_idle_node_is_well_and_asks_nobody(node: Node) -> None:
    result, runner = check(node)

    assert (result.status, result.message) == (Status.OK, "")
    assert set(result.values.values()) == {0.0}
    assert runner.commands == []


def test_this_machines_kernel_is_understood() -> None:
    found = {one.pid: one for one in processes.read_processes(Path("/proc"))}

    assert found[os.getpid()].parent == os.getppid()
    assert found[os.getpid()].state == "R"


def test_names_with_brackets_and_spaces_are_understood(node: Node) -> None:
    spawn(node, 90, "a) D (b", state="Z")

    assert check(node)[0].values["processes_zombies"] == 1.0


def test_many_zombies_are_told_with_their_parent(node: Node) -> None:
    for pid in range(1000, 1004):
        spawn(node, pid, "python3", state="Z", parent=7)
    spawn(node, 1010, "python3", state="Z", parent=1)

    result, _ = check(node, warn_zombies=5)

    assert (result.status, result.fault) == (Status.WARN, "node")
    assert result.message == "5 zombies, 1000 allowed; 4 of them children of slurmd (7)"


def test_zombies_are_a_fault_unless_a_job_makes_them(node: Node) -> None:
    for pid in range(1000, 1005):
        spawn(node, pid, "python3", state="Z")

    assert check(node, fail_zombies=5)[0].status is Status.FAIL
    assert check(replace(node, other_jobs=True), fail_zombies=5)[0].status is Status.WARN


def test_a_process_that_never_wakes_up_is_a_fault(node: Node) -> None:
    spawn(node, 90, "dd", state="D")

    found = [check(node, 1000.0 + 30 * run)[0] for run in range(5)]

    assert [result.status for result in found] == [Status.OK] * 4 + [Status.FAIL]
    assert found[-1].fault == "node"
    assert found[-1].message == "stuck in the kernel: dd (90) for 120 s"
    assert found[-1].values["processes_stuck"] == 1.0


def test_a_process_that_works_between_its_waits_is_not_stuck(node: Node) -> None:
    for run in range(6):
        spawn(node, 90, "dd", state="D", ticks=run)
        result, _ = check(node, 1000.0 + 30 * run)

        assert result.status is Status.OK


def test_another_process_of_the_same_number_is_another(node: Node) -> None:
    for run in range(6):
        spawn(node, 90, "dd", state="D", start=run)

        assert check(node, 1000.0 + 30 * run)[0].status is Status.OK


def test_a_stuck_process_beside_a_job_may_be_the_jobs(node: Node) -> None:
    spawn(node, 90, "python3", state="D")

    assert later(replace(node, other_jobs=True)).status is Status.WARN


@pytest.mark.parametrize(("name", "flags"), [("health-periodi", 0), ("kworker/0:1", KERNEL_THREAD)])
def test_a_hanging_check_and_the_kernels_own_are_no_fault(node: Node, name: str, flags: int) -> None:
    spawn(node, 90, name, state="D", flags=flags)

    assert later(node).status is Status.OK


def test_a_command_line_of_a_stuck_process_is_not_read(node: Node) -> None:
    """The read would be stuck too."""
    spawn(node, 90, "slurmstepd", state="D", title="slurmstepd: [17.0]")
    (node.root / "proc/90/cmdline").unlink()
    os.mkfifo(node.root / "proc/90/cmdline")

    assert later(node).message == "stuck in the kernel: slurmstepd (90) for 120 s"


def step(node: Node, pid: int, title: str, *, with_task: bool) -> None:
    spawn(node, pid, "slurmstepd", parent=1, title=title)
    if with_task:
        spawn(node, pid + 1, "sleep", parent=pid, user=1001)


def test_running_steps_are_well_and_nobody_is_asked(node: Node) -> None:
    busy = replace(node, other_jobs=True)
    step(node, 90, "slurmstepd: [17.batch]", with_task=True)
    step(node, 95, "slurmstepd: [17.extern]", with_task=True)

    assert later(busy).status is Status.OK
    assert check(busy, 2000.0)[1].commands == []


@pytest.mark.parametrize("busy", [True, False])
def test_a_step_whose_job_has_ended_is_a_fault(node: Node, busy: bool) -> None:
    step(node, 90, "slurmstepd: [17.batch]", with_task=not busy)
    step(node, 95, "slurmstepd: [18.0]", with_task=True)

    result = later(replace(node, other_jobs=busy), Ended(code=0, stdout="18\n"))

    assert (result.status, result.fault) == (Status.FAIL, "node")
    assert result.message == "steps of jobs that have ended (17): slurmstepd (90) for 120 s"
    assert result.values["processes_steps_without_job"] == 1.0


def test_a_step_that_ends_is_no_fault(node: Node) -> None:
    busy = replace(node, other_jobs=True)
    step(node, 90, "slurmstepd: [17.batch]", with_task=False)

    result, runner = check(busy)

    assert result.status is Status.OK
    assert runner.commands == []


def test_a_step_whose_job_lives_is_well(node: Node) -> None:
    step(node, 90, "slurmstepd: [17.extern]", with_task=False)

    assert later(replace(node, other_jobs=True), Ended(code=0, stdout="17\n18\n")).status is Status.OK


def test_slurm_is_asked_for_all_jobs_that_have_the_node(node: Node) -> None:
    step(node, 90, "slurmstepd: [17.0]", with_task=False)

    _, runner = check(node, step_seconds=0)

    states = "running,suspended,completing,configuring,stopped,signaling,stage_out"
    assert runner.commands == [f"squeue --noheader --states={states} --nodelist=w-0 --format=%A"]


@pytest.mark.parametrize(
    "answer",
    [
        Ended(code=NO_PROGRAM, stderr="squeue: no such program"),
        Ended(code=TIMED_OUT, stderr="squeue: no answer within 3 s"),
        Ended(code=1, stderr="slurm_load_jobs error: Unable to contact slurm controller (connect failure)"),
        Ended(code=0, stdout="\x00\ufffd what?\n"),
    ],
)
def test_a_slurm_that_does_not_answer_makes_suspects_not_checked(node: Node, answer: Ended) -> None:
    step(node, 90, "slurmstepd: [17.0]", with_task=False)

    result = later(node, answer)

    assert (result.status, result.fault) == (Status.NOT_CHECKED, None)
    assert result.message.startswith("1 steps seem to have no job: ")


@pytest.mark.parametrize("title", ["slurmstepd", "/usr/sbin/slurmstepd infinity", ""])
def test_a_slurmstepd_that_is_no_steps_is_left_alone(node: Node, title: str) -> None:
    spawn(node, 90, "slurmstepd", parent=1, title=title)

    assert later(node).status is Status.OK


def test_what_jobs_left_running_is_told(node: Node) -> None:
    for pid in range(90, 95):
        spawn(node, pid, "miner", parent=1, user=1001)

    assert check(node)[0].status is Status.OK
    result = later(node)

    assert (result.status, result.fault) == (Status.WARN, "user")
    assert result.message == "5 processes of users without a job: miner (90), miner (91), miner (92) ..."


def test_processes_of_the_system_are_not_left_by_jobs(node: Node) -> None:
    spawn(node, 90, "chronyd", parent=1, user=102)

    assert later(node).status is Status.OK


def test_processes_beside_a_job_are_its_own(node: Node) -> None:
    spawn(node, 90, "tmux", parent=1, user=1001)
    assert later(replace(node, other_jobs=True)).status is Status.OK

    step(node, 95, "slurmstepd: [17.0]", with_task=True)
    assert later(node, Ended(code=0, stdout="17\n")).status is Status.OK


def test_a_process_that_ends_meanwhile_does_no_harm(node: Node) -> None:
    (node.root / "proc/90").mkdir()

    assert check(node)[0].status is Status.OK


@pytest.mark.parametrize("text", ["", "90 (sh) S", "90 sh S 1 2 3", "90 (sh) S one" + " x" * 48, "\x00\ufffd"])
def test_garbage_is_not_checked(node: Node, text: str) -> None:
    write(node.root / "proc/90/stat", text)

    result, _ = check(node)

    assert result.status is Status.NOT_CHECKED
    assert "1 of 3 processes" in result.message


def test_a_machine_without_a_list_of_processes_is_not_checked(tmp_path: Path) -> None:
    node = make_node(tmp_path)
    assert check(node)[0].status is Status.NOT_CHECKED

    (node.root / "proc").mkdir()
    assert check(node)[0].status is Status.NOT_CHECKED
