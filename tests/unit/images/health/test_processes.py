"""Processes that should not be there: counted as the kernel lists them, and Slurm is asked only about suspects."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from images.common.command import TIMED_OUT
from images.common.command import Result as Ended
from images.common.steps import SLURMSTEPD
from images.health.checks import processes
from images.health.contract import Node, Result, Thresholds
from tests.fakes.commands import FakeRunner
from tests.unit.images.health.places import make_node, write
from tests.unit.images.health.processes import fork_all_the_time, fork_nothing
from tests.unit.images.health.processes import run as run_program
from tests.unit.images.health.tables import Like, table, words

KERNEL_THREAD = 0x00200000
STAT = (
    "{pid} ({name}) {state} {parent} {pid} {pid} 0 -1 {flags} 5138 1219 11 6 {ticks} 3 2 1 20 0 {threads} 0 {start} "
    "344260608 2265 18446744073709551615 94560583592984 94560583613865 140731015459504 0 0 0 0 4096 81998 0 0 0 17 "
    "1 0 0 0 0 0 94560583629872 94560583631488 94561213317120 140731015465667 "
    "140731015465687 140731015465687 140731015466987 0\n"
)
"""A line of /proc/PID/stat as Linux 6.18 writes it."""
Change = Callable[[Node], None]


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
    runs: str = "",
    threads: int = 1,
) -> None:
    directory = node.root / "proc" / str(pid)
    text = STAT.format(
        pid=pid, name=name, state=state, parent=parent, flags=flags, ticks=ticks, start=start, threads=threads
    )
    write(directory / "stat", text)
    write(directory / "cmdline", f"{title or name}\0")
    write(directory / "status", f"Name:\t{name}\nUid:\t{user}\t{user}\t{user}\t{user}\n")
    run_program(node.root / "proc", pid, runs or (SLURMSTEPD if (name, user) == ("slurmstepd", 0) else "usr/bin/one"))


def one(name: str, **more: object) -> Change:
    return lambda node: spawn(node, 90, name, **more)  # type: ignore[arg-type]


def step(title: str, *, with_task: bool, pid: int = 90) -> Change:
    def add(node: Node) -> None:
        spawn(node, pid, "slurmstepd", parent=1, title=title)
        if with_task:
            spawn(node, pid + 1, "sleep", parent=pid, user=1001)

    return add


def several(*changes: Change) -> Change:
    def add(node: Node) -> None:
        for change in changes:
            change(node)

    return add


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """An idle worker: tini, slurmd, and what is not a process."""
    node = make_node(tmp_path)
    spawn(node, 1, "tini", parent=0)
    spawn(node, 7, "slurmd", parent=1)
    write(node.root / "proc/meminfo", "MemTotal: 1 kB\n")
    fork_nothing(node.root / "proc")
    return node


def check(node: Node, at: float = 1000.0, squeue: Any = None, **limits: float) -> tuple[Result, FakeRunner]:
    runner = FakeRunner({"squeue": squeue or Ended(code=0)})
    return processes.run(node, runner, Thresholds({"processes": limits}), clock=lambda: at), runner


def later(node: Node, squeue: Ended | None = None) -> list[Result]:
    """Five runs, half a minute apart."""
    return [check(node, 1000.0 + 30 * run, squeue)[0] for run in range(5)]


STEP_17 = step("slurmstepd: [17.batch]", with_task=True)
EMPTY_17 = step("slurmstepd: [17.batch]", with_task=False)
STEP_18 = step("slurmstepd: [18.0]", with_task=True, pid=95)
EXTERN_17 = step("slurmstepd: [17.extern]", with_task=False)
MINERS = several(*[lambda node, pid=pid: spawn(node, pid, "miner", parent=1, user=1001) for pid in range(90, 95)])
HOSTILE = one("slurmstepd", parent=1, title="slurmstepd: [1.batch]", user=1001)
ANYBODYS = one("slurmstepd", parent=1, title="slurmstepd: [1.batch]", user=1001, runs=SLURMSTEPD)
STUCK = "fail [node]: stuck in the kernel: ... (90) for 120 s"
ENDED = "fail [node]: steps of jobs that have ended (17): slurmstepd (90) for 120 s"


@table(
    "change, busy, squeue, expected",
    {
        "one that never wakes up": (one("dd", state="D"), False, "", STUCK),
        "beside a job it may be the job's": (one("dd", state="D"), True, "", "warn [node]: stuck in the kernel: ..."),
        "a hanging check of ours": (one("health-periodi", state="D", flags=0), False, "", "ok"),
        "a user's program with the name of ours": (one("health", state="D", user=999), False, "", STUCK),
        "a job that calls itself a step": (several(STEP_18, HOSTILE), True, "18\n", "ok"),
        "slurmstepd, started by a user": (several(STEP_18, ANYBODYS), True, "18\n", "ok"),
        "a job that left what calls itself a step": (HOSTILE, False, "", "warn [user]: 1 ... without a job: ..."),
        "the kernel's own": (one("kworker/0:1", state="D", flags=KERNEL_THREAD), False, "", "ok"),
        "running steps": (several(STEP_17, STEP_18), True, "", "ok"),
        "a step without a task whose job has ended": (several(EMPTY_17, STEP_18), True, "18\n", ENDED),
        "a step with a task whose job has ended": (several(STEP_17, STEP_18), False, "18\n", ENDED),
        "a step without a task whose job lives": (EXTERN_17, True, "17\n18\n", "ok"),
        "a slurmstepd for all": (one("slurmstepd", parent=1, title="/usr/sbin/slurmstepd infinity"), False, "", "ok"),
        "what jobs left running": (MINERS, False, "", "warn [user]: 5 ... of users without a job: miner (90), ..."),
        "processes beside a step": (several(one("tmux", parent=1, user=1001), STEP_18), False, "18\n", "ok"),
        "one that ends meanwhile": (lambda node: (node.root / "proc/90").mkdir(), False, "", "ok"),
    },
)
def test_what_lasts_is_told(node: Node, change: Change, busy: bool, squeue: str, expected: str) -> None:
    change(node)
    found = later(replace(node, other_jobs=busy), Ended(code=0, stdout=squeue))
    quiet = 2 if change in {MINERS, HOSTILE} else 4
    assert {words(result) for result in found[:quiet]} == {"ok"}
    assert words(found[-1]) == Like(expected)


def test_what_forks_too_fast_to_be_seen_is_told_where_no_job_is(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    fork_all_the_time(monkeypatch)
    assert words(later(node)[-1]) == Like("warn [user]: something forks so fast that it is not seen: ...")
    assert words(later(replace(node, other_jobs=True))[-1]) == "ok"
    STEP_18(node)
    assert words(later(node, Ended(code=0, stdout="18\n"))[-1]) == "ok"


def test_a_process_that_is_not_always_the_same_is_not_stuck(node: Node) -> None:
    for change in ("ticks", "start"):
        for run in range(6):
            spawn(node, 90, "dd", state="D", **{change: run})  # type: ignore[arg-type]
            assert words(check(node, 1000.0 + 30 * run)[0]) == "ok"


def test_many_zombies_are_a_fault_unless_a_job_makes_them(node: Node) -> None:
    for pid in range(1000, 1005):
        spawn(node, pid, "a) D (b", state="Z", parent=1 if pid == 1004 else 7)
    for limits, busy, expected in [
        ({"warn_zombies": 5}, False, "warn [node]: 5 zombies, 1000 allowed; 4 ...of slurmd (7)"),
        ({"fail_zombies": 5}, False, "fail [node]: 5 zombies, 5 allowed; 4 of them children of slurmd (7)"),
        ({"fail_zombies": 5}, True, "warn ..."),
    ]:
        result, _ = check(replace(node, other_jobs=busy), **limits)
        assert words(result) == Like(expected)
        assert result.values["processes_zombies"] == 5.0


def test_slurm_is_asked_only_about_steps_without_a_task_and_then_for_all_jobs_that_have_the_node(node: Node) -> None:
    busy = replace(node, other_jobs=True)
    assert check(node)[1].commands == []
    STEP_17(node)
    later(busy)
    assert check(busy, 2000.0)[1].commands == [], "running steps"
    shutil.rmtree(node.root / "proc/91")
    assert check(busy)[1].commands == [], "it may be ending"
    states = "running,suspended,completing,configuring,stopped,signaling,stage_out"
    asked = f"prlimit --core=0 --data={128 << 20} squeue --noheader --states={states} --nodelist=w-0 --format=%A"
    assert check(busy, step_seconds=0)[1].commands == [asked]


def test_a_slurm_that_does_not_answer_makes_suspects_not_checked(node: Node) -> None:
    EMPTY_17(node)
    for answer in (Ended(code=TIMED_OUT, stderr="no answer"), Ended(code=0, stdout="\x00\ufffd what?\n")):
        assert words(later(node, answer)[-1]) == Like("not checked: 1 steps seem to have no job: ...")


def test_garbage_is_not_checked(node: Node, tmp_path: Path) -> None:
    for text in ("90 (sh) S", "90 sh S 1 2 3", "90 (sh) S one" + " x" * 48, "\x00\ufffd"):
        write(node.root / "proc/90/stat", text)
        assert words(check(node)[0]) == Like("not checked: 1 of 3 processes...")
    assert check(make_node(tmp_path / "none"))[0].status == "not checked", "no list of processes"
