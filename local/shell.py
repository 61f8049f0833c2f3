"""Run short host commands and say clearly what went wrong."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from local.errors import LocalError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


_environment: dict[str, str] = {}


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
