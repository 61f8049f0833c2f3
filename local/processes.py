"""Daemons that outlive the command that started them, and the records by which they are found again.

A process id alone proves nothing, it may have been given to another process: a record also has the start time (in
clock ticks since boot) and the boot's id, so that nothing of somebody else is ever killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from local import cgroups, files, paths

_WHEN_RECORDED = 'read -r word && exec "$@" </dev/null'
"""What a daemon is until it is recorded: a shell that ends where nobody sends it a line any more."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """Which process a component is."""

    pid: int
    start_ticks: int
    boot_id: str
    started_at: float

    def is_alive(self) -> bool:
        """Tell whether exactly this process runs."""
        return self.boot_id == boot_id() and start_ticks(self.pid) == self.start_ticks


def boot_id() -> str:
    """Give the kernel's id of this boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def start_ticks(pid: int) -> int | None:
    """Give a living process's start time; None when there is none or it is a zombie."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    try:
        return cgroups.start_ticks(Path(f"/proc/{pid}/stat").read_text())
    except OSError:
        return None


def record_of(component: str) -> Record | None:
    """Read a component's record; a damaged one (power cut while it was written) counts as none."""
    try:
        return Record(**json.loads(_record_path(component).read_text()))
    except (OSError, ValueError, TypeError):
        return None


def is_running(component: str) -> bool:
    """Tell whether a component runs."""
    record = record_of(component)
    return record is not None and record.is_alive()


def log_path(component: str) -> Path:
    """Give a component's log file."""
    return paths.logs() / f"{component}.log"


def start(component: str, command: Sequence[str], env: Mapping[str, str]) -> Record:
    """Start a daemon in a session of its own, its output appended to its log.

    It is recorded before it begins: whoever interrupts or kills us at whatever moment, no daemon runs on unknown, with
    its port taken.
    """
    log = log_path(component)
    log.parent.mkdir(parents=True, exist_ok=True)
    reader, writer = os.pipe()
    try:
        pid = _spawn_waiting(command, env, log, reader)
        cgroups.enter(pid, component)
        record = Record(pid=pid, start_ticks=start_ticks(pid) or 0, boot_id=boot_id(), started_at=time.time())
        files.write_whole(_record_path(component), json.dumps(asdict(record)), durable=False)
        with contextlib.suppress(BrokenPipeError):  # it was killed meanwhile, which is found out as of any other daemon
            os.write(writer, b"go\n")
    finally:
        os.close(writer)
        os.close(reader)
    return record


def _spawn_waiting(command: Sequence[str], env: Mapping[str, str], log: Path, reader: int) -> int:
    """Make the process that becomes the daemon when there is a line to be read; its id, which stays."""
    actions = [
        (os.POSIX_SPAWN_DUP2, reader, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    defaults = [signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGHUP]
    shell = ["/bin/sh", "-c", _WHEN_RECORDED, "sh", *command]
    return os.posix_spawn(
        shell[0], shell, dict(env), file_actions=actions, setsid=True, setsigdef=defaults, setsigmask=[]
    )


def stop(component: str, *, grace_s: float = 0) -> bool:
    """Stop a component: SIGTERM when it has time, then SIGKILL. Does nothing when it does not run.

    Returns whether it ended by itself or had done so before.
    """
    record, by_itself = record_of(component), True
    if record is not None and record.is_alive():
        if grace_s > 0:
            _signal(record, signal.SIGTERM)
            _wait_gone(record, grace_s)
        by_itself = not record.is_alive()
        _signal(record, signal.SIGKILL)
        _wait_gone(record, 10)
    _record_path(component).unlink(missing_ok=True)
    return by_itself


def log_tail(component: str, lines: int = 8) -> str:
    """Give the last lines of a log, for an error message."""
    try:
        text = log_path(component).read_bytes()[-20_000:].decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-lines:])


def _record_path(component: str) -> Path:
    return paths.run() / f"{component}.json"


def _signal(record: Record, number: signal.Signals) -> None:
    if record.is_alive():
        with contextlib.suppress(ProcessLookupError):
            os.kill(record.pid, number)


def _wait_gone(record: Record, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while record.is_alive() and time.monotonic() < deadline:
        time.sleep(0.01)
