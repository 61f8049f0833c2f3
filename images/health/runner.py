"""Runs checks so that none of them can hurt anything: neither the node, nor another check, nor the report.

Each check runs in a forked child of its own, one after another. A child that has not ended in time is killed. What
cannot be killed, since it waits inside the kernel, is left behind, and its check is not started again while it lives:
a broken disk must not fill the node with processes.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from images.common.command import Runner, run
from images.common.health.contract import Check, Node, Result, Status, Thresholds
from images.health.proc import Process, process, processes
from images.health.state import recall, remember
from images.health.verdict import UnknownError, not_checked

STUCK: Final = "stuck"
"""What is remembered under this name: check -> [process, when it began] of what does not end."""

_DYING_SECONDS: Final = 0.5


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a check ended."""

    result: Result
    seconds: float = 0.0
    """How long it took."""


def run_checks(
    checks: Sequence[Check], node: Node, thresholds: Thresholds, *, seconds: float = math.inf
) -> dict[str, Outcome]:
    """Run checks for real. `seconds`: for all together. Raises nothing that a check does."""
    end = time.monotonic() + seconds
    stuck, outcomes = _still_stuck(node), {}
    before = dict(stuck)
    for check in checks:
        left = end - time.monotonic()
        if check.name in before:
            why = f"process {before[check.name][0][0]} of an earlier run does not end"
            outcomes[check.name] = Outcome(result=not_checked(why))
        elif left <= 0:
            outcomes[check.name] = Outcome(result=not_checked("no time was left for it"))
        else:
            outcomes[check.name], survivors = _run(check, node, thresholds, min(left, check.seconds))
            if survivors:
                stuck[check.name] = [(found.pid, found.start) for found in survivors]
    if stuck != before:
        remember(node, STUCK, stuck)
    return outcomes


def _run(check: Check, node: Node, thresholds: Thresholds, seconds: float) -> tuple[Outcome, list[Process]]:
    """One check in a child of its own, and what lives on of the processes that it has started."""
    since = time.monotonic()
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        _be_child(theirs, check, node, thresholds)
    os.close(theirs)
    with contextlib.suppress(OSError):  # the child does it too: whoever comes first
        os.setpgid(pid, pid)
    try:
        text = _said(ours, since + seconds)
    finally:
        os.close(ours)
        # Before it is asked for its result: until then no other process group can get its number.
        with contextlib.suppress(OSError):
            os.killpg(pid, signal.SIGKILL)
    took, deadline = time.monotonic() - since, time.monotonic() + _DYING_SECONDS
    status = _reap(pid, deadline)
    if text is None:
        return Outcome(result=not_checked(f"did not end in {took:.1f} s"), seconds=took), _survivors(pid, deadline)
    if text.endswith(b"\n"):
        return Outcome(result=result_of(json.loads(text)), seconds=took), []
    how = f": signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else ""
    return Outcome(result=not_checked(f"the check crashed{how}"), seconds=took), []


def _said(pipe: int, deadline: float) -> bytes | None:
    """The line that a child says, or less if it ends before; None if neither comes in time."""
    text = b""
    while not text.endswith(b"\n"):
        ready, _, _ = select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return None
        data = os.read(pipe, 65536)
        if not data:
            break
        text += data
    return text


def _reap(pid: int, deadline: float) -> int:
    """The end of a killed child, which takes the kernel a moment; 0 if it does not come."""
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done or time.monotonic() >= deadline:
            return status
        time.sleep(0.001)


def _survivors(group: int, deadline: float) -> list[Process]:
    """What still lives of a killed process group."""
    while True:
        found = [process for process in processes() if process.group == group and not process.has_ended]
        if not found or time.monotonic() >= deadline:
            return found
        time.sleep(0.02)


def _be_child(pipe: int, check: Check, node: Node, thresholds: Thresholds) -> NoReturn:
    """The forked child: it says one line, and has no other way to say anything."""
    try:
        os.setpgid(0, 0)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nothing, descriptor)
        # A check that cannot be killed must hold nothing of those who go on without it.
        os.closerange(3, pipe)
        os.closerange(pipe + 1, os.sysconf("SC_OPEN_MAX"))
        line = json.dumps(vars(attempt(check, node, thresholds, run))).encode() + b"\n"
        while line:
            line = line[os.write(pipe, line) :]
    finally:
        os._exit(0)


def attempt(check: Check, node: Node, thresholds: Thresholds, tools: Runner) -> Result:
    """The result of a check, whatever it does in this process."""
    try:
        return check.run(node, tools, thresholds)
    except UnknownError as error:
        return not_checked(str(error))
    except Exception as error:  # noqa: BLE001  (that is the point)
        return not_checked(f"{type(error).__name__}: {error}".rstrip(": "))


def result_of(said: Mapping[str, Any]) -> Result:
    """The result whose fields these are, as they were written as JSON."""
    return Result(status=Status(said["status"]), message=said["message"], fault=said["fault"], values=said["values"])


def _still_stuck(node: Node) -> dict[str, list[tuple[int, int]]]:
    """What an earlier run left behind and still lives."""
    stuck = {}
    for name, found in recall(node, STUCK).items():
        alive = [(pid, start) for pid, start in found if _lives(pid, start)]
        if alive:
            stuck[name] = alive
    return stuck


def _lives(pid: int, start: int) -> bool:
    """Whether exactly this process still runs. One that has ended and only waits to be asked does not."""
    found = process(pid)
    return found is not None and found.start == start and not found.has_ended
