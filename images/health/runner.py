"""Runs checks so that none of them can hurt anything: neither the node, nor another check, nor the report.

Checks run in forked children, one child for those that look at the same hardware, as these share what they read. A
child whose check has not ended in time is killed, and another one goes on with the next check. What cannot be killed,
since it waits inside the kernel, is left behind, and its check is not started again while it lives: a broken disk must
not fill the node with processes.
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
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from images.common.command import Runner
from images.common.health.contract import Check, Node, Result, Status, Thresholds
from images.health.proc import Process, lives, process, processes
from images.health.state import recall, remember
from images.health.tools import Tools
from images.health.verdict import not_checked

STUCK: Final = "stuck"
"""What is remembered under this name: check -> [process, when it began] of what does not end."""

_DYING_SECONDS: Final = 0.5
_LONGEST_MESSAGE: Final = 4000


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a check ended."""

    result: Result
    seconds: float = 0.0
    """How long it took."""


@dataclass(kw_only=True)
class _Child:
    """A process that runs checks one after another."""

    pid: int
    pipe: int
    waiting: list[Check]
    """What has not ended yet; the first of them runs."""
    since: float
    """When that began."""
    text: bytes = b""
    left: dict[int, str] = field(default_factory=dict)
    """Processes that were started by a check and could not be killed -> the check."""


class Running:
    """One run of several checks."""

    def __init__(self, node: Node, thresholds: Thresholds, *, seconds: float = math.inf, tools: Tools) -> None:
        """`seconds`: for all together."""
        self._node = node
        self._thresholds = thresholds
        self._tools = tools
        self._end = time.monotonic() + seconds
        self._children: list[_Child] = []
        self._outcomes: dict[str, Outcome] = {}
        self._stuck = _load_stuck(node)
        for found in self._stuck.values():
            for pid, _ in found:
                self._tools.hang(process(pid))

    def run(self, checks: Sequence[Check]) -> dict[str, Outcome]:
        """All checks, by name. Raises nothing that a check does."""
        before = dict(self._stuck)
        lanes: dict[str, list[Check]] = {}
        for check in checks:
            if check.name in self._stuck:
                self._outcomes[check.name] = Outcome(result=not_checked(self._why_stuck(check.name)))
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

    def _why_stuck(self, name: str) -> str:
        pid = self._stuck[name][0][0]
        found = process(pid)
        return f"process {pid} ({found.comm if found else '?'}) of an earlier run does not end"

    def _start(self, checks: list[Check]) -> None:
        if not checks:
            return
        ours, theirs = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(ours)
            _be_child(theirs, checks, self._node, self._thresholds, self._tools)
        os.close(theirs)
        with contextlib.suppress(OSError):  # the child does it too: whoever comes first
            os.setpgid(pid, pid)
        self._children.append(_Child(pid=pid, pipe=ours, waiting=list(checks), since=time.monotonic()))

    def _step(self) -> None:
        """Wait for the next thing that a child says, or that it should have said by now."""
        deadlines = {child.pipe: self._deadline(child) for child in self._children}
        pause = max(0.0, min(deadlines.values()) - time.monotonic())
        ready, _, _ = select.select(list(deadlines), [], [], pause)
        for child in list(self._children):
            if child.pipe in ready:
                self._hear(child)
            elif time.monotonic() >= deadlines[child.pipe]:
                self._too_late(child)

    def _deadline(self, child: _Child) -> float:
        return min(self._end, child.since + child.waiting[0].seconds)

    def _hear(self, child: _Child) -> None:
        data = os.read(child.pipe, 65536)
        child.text += data
        while b"\n" in child.text and child.waiting:
            line, _, child.text = child.text.partition(b"\n")
            name = child.waiting.pop(0).name
            said = json.loads(line)
            child.left |= dict.fromkeys(said["left"], name)
            self._note(child, name, result_of(said))
        if not data and child.waiting:  # it has ended before its time
            name = child.waiting.pop(0).name
            self._note(child, name, not_checked(f"the check crashed{self._end_of(child)}"))
            self._start(child.waiting)
        elif not child.waiting:
            self._kill(child)

    def _note(self, child: _Child, name: str, result: Result) -> None:
        now = time.monotonic()
        self._outcomes[name] = Outcome(result=result, seconds=now - child.since)
        child.since = now

    def _too_late(self, child: _Child) -> None:
        late = child.waiting.pop(0)
        took = time.monotonic() - child.since
        self._note(child, late.name, not_checked(f"did not end in {took:.1f} s"))
        self._kill(child, late.name)
        if time.monotonic() < self._end:
            self._start(child.waiting)
            return
        for check in child.waiting:
            self._outcomes[check.name] = Outcome(result=not_checked("no time was left for it"))

    def _end_of(self, child: _Child) -> str:
        status = self._kill(child)
        if status is not None and os.WIFSIGNALED(status):
            return f": signal {os.WTERMSIG(status)}"
        return ""

    def _kill(self, child: _Child, late: str = "") -> int | None:
        """End a child and all that it has started. Returns its wait status; None if it does not end."""
        self._children.remove(child)
        os.close(child.pipe)
        # Before it is asked for its result: until then no other process group can get its number.
        with contextlib.suppress(OSError):
            os.killpg(child.pid, signal.SIGKILL)
        deadline = time.monotonic() + _DYING_SECONDS
        status = _reap(child.pid, deadline)
        if late or child.left:
            for found in _survivors(child.pid, deadline):
                name = child.left.get(found.pid, late)
                if name:
                    self._stuck.setdefault(name, []).append((found.pid, found.start))
                    self._tools.hang(found)
        return status


def _reap(pid: int, deadline: float) -> int | None:
    """The end of a killed child, which takes the kernel a moment; None if it does not come."""
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status
        if time.monotonic() >= deadline:
            return None
        time.sleep(0.001)


def _survivors(group: int, deadline: float) -> list[Process]:
    """What still lives of a killed process group."""
    while True:
        found = [process for process in processes() if process.group == group and not process.has_ended]
        if not found or time.monotonic() >= deadline:
            return found
        time.sleep(0.02)


def _be_child(pipe: int, checks: Sequence[Check], node: Node, thresholds: Thresholds, tools: Tools) -> NoReturn:
    """The forked child: it says one line per check, and has no other way to say anything."""
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
        for check in checks:
            said = said_of(attempt(check, node, thresholds, tools))
            line = json.dumps({**said, "left": tools.left}).encode() + b"\n"
            tools.left = []
            while line:
                line = line[os.write(pipe, line) :]
    finally:
        os._exit(0)


def attempt(check: Check, node: Node, thresholds: Thresholds, tools: Runner) -> Result:
    """The result of a check, whatever it does in this process."""
    try:
        result = check.run(node, tools, thresholds)
    except BaseException as error:  # noqa: BLE001  (that is the point)
        return not_checked(f"{type(error).__name__}: {error}".rstrip(": "))
    if not isinstance(result, Result) or not isinstance(result.status, Status):
        return not_checked(f"the check returned {result!r}")
    return result


def said_of(result: Result) -> dict[str, Any]:
    """A result as JSON can hold it."""
    values = {}
    for name, value in result.values.items():
        with contextlib.suppress(TypeError, ValueError):
            values[str(name)] = float(value)
    message = str(result.message)[:_LONGEST_MESSAGE]
    return {"status": result.status.value, "message": message, "fault": result.fault, "values": values}


def result_of(said: Mapping[str, Any]) -> Result:
    """The result of which `said_of` has made this. Raises KeyError, TypeError, ValueError."""
    return Result(
        status=Status(said["status"]), message=said["message"], fault=said["fault"], values=dict(said["values"])
    )


def _load_stuck(node: Node) -> dict[str, list[tuple[int, int]]]:
    """What an earlier run left behind and still lives."""
    try:
        stuck = {
            str(name): [(int(pid), int(start)) for pid, start in found if lives(int(pid), int(start))]
            for name, found in recall(node, STUCK).items()
        }
    except (ValueError, TypeError):
        return {}
    return {name: found for name, found in stuck.items() if found}


def run_checks(
    checks: Sequence[Check], node: Node, thresholds: Thresholds, *, seconds: float = math.inf
) -> dict[str, Outcome]:
    """Run checks for real; see `Running`."""
    return Running(node, thresholds, seconds=seconds, tools=Tools()).run(checks)
