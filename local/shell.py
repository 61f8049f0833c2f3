"""Run host commands, short ones and long ones, and say clearly what went wrong."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from local.errors import LocalError

LAST_LINES = 30
"""How many lines of a long command are kept for a message."""

_GRACE_S = 10.0
"""How long a command may take to clean up after it was told to stop."""

_ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")

_environment: dict[str, str] = {}

_followed: set[subprocess.Popen[str]] = set()


def use(environment: Mapping[str, str]) -> None:
    """Run all later commands in this environment, where our own tools are found."""
    _environment.clear()
    _environment.update(environment)


def run(
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    check: bool = True,
    stdin: str | None = None,
    timeout_s: float = 60,
    cwd: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run to the end with output captured; `LocalError` quotes the program's own words.

    In a session of its own: Ctrl-C at the terminal does not stop a host command half-way.
    """
    try:
        done = subprocess.run(
            command,
            check=False,
            capture_output=True,
            text=True,
            env=env or _environment or None,
            input=stdin,
            timeout=timeout_s,
            cwd=cwd,
            start_new_session=True,
        )
    except FileNotFoundError as error:
        raise LocalError(f"{command[0]} is not there", "run `up` again, which fetches it") from error
    except subprocess.TimeoutExpired as error:
        raise LocalError(f"`{' '.join(command)}` did not end within {timeout_s:.0f} s") from error
    if check and done.returncode != 0:
        words = " ".join((done.stderr or done.stdout).split()) or f"exit status {done.returncode}"
        raise LocalError(f"`{' '.join(command)}` failed: {words}")
    return done


def follow(
    command: Sequence[str],
    on_line: Callable[[str], None],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> tuple[int, list[str]]:
    """Run a long command and hand on each line as it comes, without colours; returns exit status and last lines.

    In a session of its own, so that we see an interrupt first and stop the command and everything that it started.
    Raises OSError where it cannot be run.
    """
    tail: deque[str] = deque(maxlen=LAST_LINES)
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        errors="replace", env=env, cwd=cwd, start_new_session=True,
    ) as process:  # fmt: skip
        _followed.add(process)
        try:
            for raw in process.stdout or ():
                line = _ESCAPES.sub("", raw).rstrip()
                if line:
                    tail.append(line)
                    on_line(line)
            process.wait()
        except BaseException:
            _stop(process)
            raise
        finally:
            _followed.discard(process)
    return process.returncode, list(tail)


@contextlib.contextmanager
def threads(count: int) -> Iterator[ThreadPoolExecutor]:
    """Give threads for what follows commands. Where what is done meanwhile fails, or by Ctrl-C, those are stopped."""
    with ThreadPoolExecutor(count) as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in tuple(_followed):
                _stop(process)
            raise


def _stop(process: subprocess.Popen[str]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=_GRACE_S)
            return
