"""One line per event on standard output: what `kubectl logs` shows.

A line is `PROGRAM: TEXT` or `PROGRAM: error: TEXT`, as Slurm's daemons write theirs, so that lines of several programs
in one pod's log can be told apart. The container's runtime adds the time.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import TextIO

_lock = threading.Lock()


class Log:
    """Writes lines like `config-agent: new configuration 0f3a... is active`."""

    def __init__(self, program: str, stream: TextIO | None = None) -> None:
        self._program = program
        self._stream = stream if stream is not None else sys.stdout

    def __call__(self, message: str) -> None:
        """Write one event; several lines of text become several lines with the same prefix."""
        with _lock:
            for line in message.splitlines() or [""]:
                self._stream.write(f"{self._program}: {_shown(line)}\n")
            self._stream.flush()

    def failure(self, message: str) -> None:
        """What keeps the program from its work."""
        self("\n".join(f"error: {line}" for line in message.splitlines() or [""]))


def _shown(line: str) -> str:
    """What would write elsewhere on a terminal, or is no text, is spelled out: users give names in the jail."""
    return "".join(c if c.isprintable() or c == "\t" else ascii(c)[1:-1] for c in line)


def open_pod_log() -> TextIO:
    """The stream that `kubectl logs` reads, for a program that Kubernetes starts beside PID 1, as a preStop hook.

    Falls back to standard error, where kubelet at least shows it in an event.
    """
    try:
        return Path("/proc/1/fd/1").open("a", encoding="utf-8")
    except OSError:
        return sys.stderr
