"""Runs checks so that none of them can hurt anything: neither the node, nor another check, nor the report.

Each check runs in a forked child of its own, those that look at the same hardware one after another. A child that has
not ended in time is killed. What cannot be killed, since it waits inside the kernel, is left behind, and its check is
not started again while it lives: a broken disk must not fill the node with processes.
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


@dataclass(kw_only=True)
class _Child:
    """A process that runs a check."""

    check: Check
    pid: int
    pipe: int
    since: float
    later: Sequence[Check]
    """What comes after it."""
    text: bytes = b""


class _Running:
    """One run of several checks."""

    def __init__(self, node: Node, thresholds: Thresholds, end: float) -> None:
        """`end`: when all of them have to be done."""
        self._node = node
        self._thresholds = thresholds
        self._end = end
        self._children: list[_Child] = []
        self._outcomes: dict[str, Outcome] = {}
        self._stuck = _still_stuck(node)

    def run(self, checks: Sequence[Check]) -> dict[str, Outcome]:
        """All checks, by name. Raises nothing that a check does."""
        before = dict(self._stuck)
        lanes: dict[str, list[Check]] = {}
        for check in checks:
            if check.name in before:
                why = f"process {before[check.name][0][0]} of an earlier run does not end"
                self._outcomes[check.name] = Outcome(result=not_checked(why))
            else:
                lanes.setdefault(check.hardware, []).append(check)
        try:
            for lane in lanes.values():
                self._start(lane)
            while self._children:
                self._step()
        finally:
            for child in self._children:
                self._kill(child)
        if self._stuck != before:
            remember(self._node, STUCK, self._stuck)
        return {check.name: self._outcomes[check.name] for check in checks}

    def _start(self, checks: Sequence[Check]) -> None:
        """Run the first of these; the others follow when it has ended."""
        now = time.monotonic()
        if now >= self._end:
            for check in checks:
                self._outcomes[check.name] = Outcome(result=not_checked("no time was left for it"))
        elif checks:
            ours, theirs = os.pipe()
            pid = os.fork()
            if pid == 0:
                _be_child(theirs, checks[0], self._node, self._thresholds)
            os.close(theirs)
            with contextlib.suppress(OSError):  # the child does it too: whoever comes first
                os.setpgid(pid, pid)
            self._children.append(_Child(check=checks[0], pid=pid, pipe=ours, since=now, later=checks[1:]))

    def _step(self) -> None:
        """Wait for the next thing that a child says, or that it should have said by now."""
        deadlines = {child.pipe: min(self._end, child.since + child.check.seconds) for child in self._children}
        pause = max(0.0, min(deadlines.values()) - time.monotonic())
        ready, _, _ = select.select(list(deadlines), [], [], pause)
        for child in list(self._children):
            if child.pipe in ready:
                data = os.read(child.pipe, 65536)
                child.text += data
                if data.endswith(b"\n"):
                    self._finish(child, result_of(json.loads(child.text)))
                elif not data:  # it has ended before its time
                    self._finish(child, None)
            elif time.monotonic() >= deadlines[child.pipe]:
                took = time.monotonic() - child.since
                self._finish(child, not_checked(f"did not end in {took:.1f} s"), may_stay=True)

    def _finish(self, child: _Child, result: Result | None, *, may_stay: bool = False) -> None:
        """Note what a child has found, None if it has crashed, end it, and start the next one."""
        seconds = time.monotonic() - child.since
        status = self._kill(child, may_stay=may_stay)
        if result is None:
            how = f": signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else ""
            result = not_checked(f"the check crashed{how}")
        self._outcomes[child.check.name] = Outcome(result=result, seconds=seconds)
        self._start(child.later)

    def _kill(self, child: _Child, *, may_stay: bool = False) -> int:
        """End a child and all that it has started. Returns its wait status; 0 if it does not end."""
        self._children.remove(child)
        os.close(child.pipe)
        # Before it is asked for its result: until then no other process group can get its number.
        with contextlib.suppress(OSError):
            os.killpg(child.pid, signal.SIGKILL)
        deadline = time.monotonic() + _DYING_SECONDS
        status = _reap(child.pid, deadline)
        for found in _survivors(child.pid, deadline) if may_stay else ():
            self._stuck.setdefault(child.check.name, []).append((found.pid, found.start))
        return status


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
        line = json.dumps(said_of(attempt(check, node, thresholds, run))).encode() + b"\n"
        while line:
            line = line[os.write(pipe, line) :]
    finally:
        os._exit(0)


def attempt(check: Check, node: Node, thresholds: Thresholds, tools: Runner) -> Result:
    """The result of a check, whatever it does in this process."""
    try:
        result = check.run(node, tools, thresholds)
    except UnknownError as error:
        return not_checked(str(error))
    except BaseException as error:  # noqa: BLE001  (that is the point)
        return not_checked(f"{type(error).__name__}: {error}".rstrip(": "))
    return result if isinstance(result, Result) else not_checked(f"the check returned {result!r}")


def said_of(result: Result) -> dict[str, Any]:
    """A result as JSON can hold it."""
    values = {name: float(value) for name, value in result.values.items()}
    return {"status": result.status.value, "message": result.message, "fault": result.fault, "values": values}


def result_of(said: Mapping[str, Any]) -> Result:
    """The result of which `said_of` has made this."""
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


def run_checks(
    checks: Sequence[Check], node: Node, thresholds: Thresholds, *, seconds: float = math.inf
) -> dict[str, Outcome]:
    """Run checks for real. `seconds`: for all together."""
    return _Running(node, thresholds, time.monotonic() + seconds).run(checks)
