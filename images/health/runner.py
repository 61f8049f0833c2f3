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
from dataclasses import replace
from typing import Any, Final, NoReturn

from images.common.command import Runner, run
from images.common.health.contract import Check, Node, Result, Status, UnknownError, not_checked
from images.health.proc import processes
from images.health.state import recall, remember

STUCK: Final = "stuck"
"""What is remembered under this name: check -> process group of what does not end."""

_DYING_SECONDS: Final = 0.5


def run_checks(checks: Sequence[Check], node: Node, *, seconds: float = math.inf) -> dict[str, Result]:
    """Run checks for real. `seconds`: for all together. Raises nothing that a check does."""
    end, results = time.monotonic() + seconds, {}
    before = recall(node, STUCK)
    stuck = {name: group for name, group in before.items() if _lives(group)}
    for check in checks:
        left = end - time.monotonic()
        if check.name in stuck:
            results[check.name] = not_checked(f"process {stuck[check.name]} of an earlier run does not end")
        elif left <= 0:
            results[check.name] = not_checked("no time was left for it")
        else:
            results[check.name], survivor = _run(check, node, min(left, check.seconds))
            if survivor:
                stuck[check.name] = survivor
    if stuck != before:
        remember(node, STUCK, stuck)
    return results


def _run(check: Check, node: Node, seconds: float) -> tuple[Result, int]:
    """One check in a child of its own; and its process group, if something of it lives on."""
    since = time.monotonic()
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        _be_child(theirs, check, node)
    os.close(theirs)
    with contextlib.suppress(OSError):  # the child does it too: whoever comes first
        os.setpgid(pid, pid)
    try:
        text = _read_line(ours, since + seconds)
    finally:
        os.close(ours)
        # Before it is asked for its result: until then no other process group can get its number.
        with contextlib.suppress(OSError):
            os.killpg(pid, signal.SIGKILL)
    took, deadline = time.monotonic() - since, time.monotonic() + _DYING_SECONDS
    status, survivor = _reap(pid, deadline), 0
    if text is None:
        result = not_checked(f"did not end in {took:.1f} s")
        while (lives := _lives(pid)) and time.monotonic() < deadline:
            time.sleep(0.02)
        survivor = pid if lives else 0
    elif text.endswith(b"\n"):
        result = result_of(json.loads(text))
    else:
        how = f": signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else ""
        result = not_checked(f"the check crashed{how}")
    return replace(result, seconds=took), survivor


def result_of(entry: Mapping[str, Any]) -> Result:
    """A result of which JSON was made."""
    return Result(**{**entry, "status": Status(entry["status"])})


def _lives(group: int) -> bool:
    """Whether something of a process group still runs."""
    return any(found == group for _, found in processes())


def _read_line(pipe: int, deadline: float) -> bytes | None:
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


def _be_child(pipe: int, check: Check, node: Node) -> NoReturn:
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
        line = json.dumps(vars(attempt(check, node, run))).encode() + b"\n"
        while line:
            line = line[os.write(pipe, line) :]
    finally:
        os._exit(0)


def attempt(check: Check, node: Node, tools: Runner) -> Result:
    """The result of a check, whatever it does in this process."""
    try:
        return check.run(node, tools)
    except UnknownError as error:
        return not_checked(str(error))
    except Exception as error:  # noqa: BLE001  (that is the point)
        return not_checked(f"{type(error).__name__}: {error}".rstrip(": "))
