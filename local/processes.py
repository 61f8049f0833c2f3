"""Daemons that outlive the command that started them, and the records by which they are found again.

A process id alone proves nothing, it may have been given to another process: a component runs if the process of its
record is in its cgroup, which nothing else ever is. So nothing of somebody else is ever killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from local import cgroups, paths

_BEGIN = 'echo $$ >"$0" && printf \'{"pid": %d}\' $$ >"$1" && shift && exec "$@" </dev/null'
"""What a daemon does first, by itself: it enters its cgroup and writes its record.

Whoever interrupts or kills us at whatever moment, no daemon runs on unknown, with its port taken.
"""


def pid_of(component: str) -> int | None:
    """Give a component's process; None where it does not run, or its record is damaged (power cut)."""
    try:
        pid = int(json.loads(_record(component).read_text())["pid"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return pid if pid in cgroups.living(f"daemons/{component}") else None


def is_running(component: str) -> bool:
    """Tell whether a component runs."""
    return pid_of(component) is not None


def started_at(component: str) -> float | None:
    """Give when a component that runs was started, in seconds since 1970."""
    with contextlib.suppress(OSError):  # it is stopped, or started anew, meanwhile
        at = _record(component).stat().st_mtime
        return at if is_running(component) else None
    return None


def log_path(component: str) -> Path:
    """Give a component's log file."""
    return paths.logs() / f"{component}.log"


def start(component: str, command: Sequence[str], env: Mapping[str, str]) -> None:
    """Start a daemon in a session of its own, its output appended to its log; returns when it is recorded."""
    log, record = log_path(component), _record(component)
    for file in (log, record):
        file.parent.mkdir(parents=True, exist_ok=True)
    cgroups.kill_all(f"daemons/{component}")  # what began and was never recorded would have its port
    record.unlink(missing_ok=True)
    actions = [
        (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    defaults = [signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGHUP]
    shell = ["/bin/sh", "-c", _BEGIN, str(cgroups.entrance(component)), str(record), *command]
    pid = os.posix_spawn(
        shell[0], shell, dict(env), file_actions=actions, setsid=True, setsigdef=defaults, setsigmask=[]
    )
    with contextlib.suppress(ChildProcessError):  # it has ended, and was waited for where that was found out
        while pid_of(component) != pid and os.waitpid(pid, os.WNOHANG)[0] == 0:
            time.sleep(0.001)


def stop(component: str, *, grace_s: float = 0) -> bool:
    """Stop a component: SIGTERM when it has time, then SIGKILL. Does nothing when it does not run.

    Returns whether it ended by itself or had done so before.
    """
    if grace_s > 0:
        _signal(component, signal.SIGTERM)
        _wait_gone(component, grace_s)
    by_itself = not is_running(component)
    _signal(component, signal.SIGKILL)
    _wait_gone(component, 10)
    _record(component).unlink(missing_ok=True)
    return by_itself


def log_tail(component: str, lines: int = 8) -> str:
    """Give the last lines of a log, for an error message."""
    try:
        text = log_path(component).read_bytes()[-20_000:].decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-lines:])


def _record(component: str) -> Path:
    return paths.run() / f"{component}.json"


def _signal(component: str, number: signal.Signals) -> None:
    if (pid := pid_of(component)) is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _wait_gone(component: str, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while is_running(component) and time.monotonic() < deadline:
        time.sleep(0.01)
