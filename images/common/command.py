"""The one seam through which the programs start other programs; tests put a fake in its place."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

TIMED_OUT: Final = 124
NOT_STARTED: Final = 126
NO_PROGRAM: Final = 127


@dataclass(frozen=True, kw_only=True)
class Result:
    """How a command ended. `code` is 124 without an end in time, 127 without such a program, 126 without a process."""

    code: int
    stdout: str = ""
    stderr: str = ""

    @property
    def ok(self) -> bool:
        """Whether the command succeeded."""
        return self.code == 0

    @property
    def message(self) -> str:
        """What the command said, for a log line."""
        return (self.stderr.strip() or self.stdout.strip() or f"exit code {self.code}").replace("\n", " | ")


class Runner(Protocol):
    """Runs a command to its end."""

    def __call__(self, argv: Sequence[str], *, timeout: float = 10.0, env: Mapping[str, str] | None = None) -> Result:
        """Run `argv`; `timeout` in seconds; `env` replaces the whole environment where given."""
        ...


def run(argv: Sequence[str], *, timeout: float = 10.0, env: Mapping[str, str] | None = None) -> Result:
    """Run a command for real. Never raises for what the command does: the caller always has to look at the code."""
    try:
        done = subprocess.run(
            list(argv),
            capture_output=True,
            timeout=timeout,
            env=None if env is None else dict(env),
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return Result(code=TIMED_OUT, stderr=f"{argv[0]}: no answer within {timeout:g} s")
    except FileNotFoundError:
        return Result(code=NO_PROGRAM, stderr=f"{argv[0]}: no such program")
    except OSError as error:  # no memory, or no more processes for this pod just now
        return Result(code=NOT_STARTED, stderr=f"{argv[0]}: {error.strerror}")
    # Not as text of Python's, in which a carriage return ends a line (lines.py).
    stdout, stderr = (output.decode(errors="replace") for output in (done.stdout, done.stderr))
    return Result(code=done.returncode, stdout=stdout, stderr=stderr)
