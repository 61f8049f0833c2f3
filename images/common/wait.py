"""Waiting for something that another container brings, in a way that an administrator can follow."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

REPEAT_SECONDS: Final = 10.0
"""How often a program that still waits says so again."""


class Clock:
    """Time as seen by the programs; tests give a faster one."""

    def now(self) -> float:
        """Seconds on a clock that never goes backwards."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


class Reminder:
    """Says what a program waits for: the first time at once, then at most every `REPEAT_SECONDS`."""

    def __init__(self, log: Callable[[str], None], clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._started: float | None = None
        self._logged_at = 0.0

    def waiting(self, what: str) -> None:
        """Call once per poll."""
        now = self._clock.now()
        if self._started is None:
            self._started = self._logged_at = now
            self._log(f"waiting for {what}")
        elif now - self._logged_at >= REPEAT_SECONDS:
            self._logged_at = now
            self._log(f"still waiting for {what} ({now - self._started:.0f} s)")


def wait_for(
    what: str,
    condition: Callable[[], bool],
    log: Callable[[str], None],
    *,
    poll_seconds: float = 0.05,
    clock: Clock | None = None,
) -> None:
    """Return as soon as `condition` holds. No deadline: Kubernetes has those, and knows better when to give up."""
    wait_while(lambda: None if condition() else what, log, poll_seconds=poll_seconds, clock=clock)


def wait_while(
    missing: Callable[[], str | None],
    log: Callable[[str], None],
    *,
    poll_seconds: float,
    clock: Clock | None = None,
) -> None:
    """Return as soon as nothing is missing."""
    clock = clock or Clock()
    reminder = Reminder(log, clock)
    while what := missing():
        reminder.waiting(what)
        clock.sleep(poll_seconds)
