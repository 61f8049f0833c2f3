"""Running checks: whatever one of them does, the others and the report go on."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from images.common.command import Runner
from images.common.health.contract import Check, Node, Result, Status, not_checked, ok
from images.health import runner, state
from images.health.proc import processes
from images.health.runner import run_checks

Program = Callable[[Node, Runner], Result]


def check(name: str, program: Program, *, seconds: float = 20.0) -> Check:
    return Check(name=name, run=program, seconds=seconds)


def well(_node: Node, _runner: Runner) -> Result:
    return ok()


def raises(_node: Node, _runner: Runner) -> Result:
    raise ValueError("no such field")


def hangs(_node: Node, _runner: Runner) -> Result:
    time.sleep(600)
    return ok()


def dies(_node: Node, _runner: Runner) -> Result:
    os.kill(os.getpid(), signal.SIGKILL)
    return ok()


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(name="w-0", state=tmp_path / "state")


def test_a_check_that_raises_crashes_or_hangs_is_not_checked_and_the_others_are(node: Node) -> None:
    found = run_checks(
        [
            check("raises", raises),
            check("crashes", dies),
            check("hangs", hangs, seconds=0.2),
            check("well", well),
        ],
        node,
    )
    assert found["raises"] == not_checked("ValueError: no such field")
    assert found["crashes"] == not_checked("the check crashed: signal 9")
    assert found["hangs"].status is Status.NOT_CHECKED
    assert "did not end in 0." in found["hangs"].message
    assert found["well"] == ok()


def test_the_time_of_all_together_is_kept_and_what_did_not_run_is_not_checked(node: Node) -> None:
    found = run_checks([check("hangs", hangs), check("late", well)], node, seconds=0.2)
    assert found["hangs"].status is Status.NOT_CHECKED
    assert float(found["hangs"].message.split()[-2]) < 20, "its own limit"
    assert found["late"] == not_checked("no time was left for it")


def test_nothing_that_a_check_started_outlives_it(node: Node) -> None:
    def daemon(_node: Node, _runner: Runner) -> Result:
        subprocess.Popen(["sleep", "600"])
        return ok(group=os.getpgrp())

    def hanging_tool(_node: Node, _runner: Runner) -> Result:
        subprocess.run(["sleep", "601"], check=False)
        return ok()

    found = run_checks([check("daemon", daemon), check("tool", hanging_tool, seconds=0.2)], node)
    group = int(found["daemon"].values["group"])
    assert group != os.getpgrp()
    assert group not in {found for _, found in processes()}
    assert not (node.state / f"{runner.STUCK}.json").exists()


@pytest.fixture
def undying(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Processes that the kernel does not let die: killing does nothing."""
    groups: list[int] = []
    killpg = os.killpg
    monkeypatch.setattr("os.killpg", lambda group, _signal: groups.append(group))
    monkeypatch.setattr(runner, "_DYING_SECONDS", 0.05)
    yield groups
    for group in groups:
        try:
            killpg(group, signal.SIGKILL)
            os.waitpid(group, 0)
        except (ProcessLookupError, ChildProcessError):
            continue


def test_a_check_that_cannot_be_killed_is_not_started_again_while_it_lives(
    node: Node, undying: list[int], tmp_path: Path
) -> None:
    def counts(_node: Node, _runner: Runner) -> Result:
        with (tmp_path / "starts").open("a") as file:
            file.write("x")
        time.sleep(600)
        return ok()

    checks = [check("disks", counts, seconds=0.2), check("well", well)]
    assert run_checks(checks, node)["well"] == ok()
    again = run_checks(checks, node)
    assert again["disks"].status is Status.NOT_CHECKED
    assert f"process {undying[0]}" in again["disks"].message
    assert "does not end" in again["disks"].message
    assert again["well"] == ok()
    assert (tmp_path / "starts").read_text() == "x"
    os.kill(undying[0], signal.SIGKILL)
    os.waitpid(undying[0], 0)
    run_checks(checks, node)
    assert (tmp_path / "starts").read_text() == "xx"


def leaves_its_group(_node: Node, _runner: Runner) -> Result:
    """Starts a process that no kill of the run reaches, with all that a fork inherits."""
    left = os.fork()
    if left == 0:
        os.setsid()
        time.sleep(600)
    while os.getpgid(left) != left:
        time.sleep(0.001)
    return ok(left=left)


def test_what_outlives_a_run_holds_neither_its_lock_nor_its_connection(node: Node) -> None:
    """As a check does that sleeps in the kernel: the node would be silent for as long as that lasts."""
    asks, answers = os.pipe()
    child = os.fork()
    if child == 0:
        try:  # whatever happens, it must not go on as a second pytest
            with state.only_me(node, "periodic"):
                left = run_checks([check("disks", leaves_its_group)], node)["disks"].values["left"]
                os.write(answers, str(int(left)).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(answers)
    left = int(os.read(asks, 16))
    os.set_blocking(asks, False)
    try:
        assert os.read(asks, 1) == b"", "it holds an end of the pipe"
        with state.only_me(node, "periodic") as later:
            assert later
        os.kill(left, 0)
    finally:
        os.kill(left, signal.SIGKILL)
