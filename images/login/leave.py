"""leave: the end of a login node's life, as the pod's preStop hook where login nodes come and go.

It returns when nobody is logged in any more. New connections go to other login nodes: the Service leads to none that
leaves. How long it may wait is the pod's termination grace period.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from images.common.log import open_pod_log
from images.common.process import program
from images.common.wait import Clock, Reminder
from images.login.sessions import all_sessions

POLL_SECONDS: Final = 1.0
QUIET_SECONDS: Final = 5.0
"""Without any session, until it ends: the last connections come while Kubernetes tells all machines of the Service."""


def wait_for_sessions(
    log: Callable[[str], None], count: Callable[[], int] = all_sessions, clock: Clock | None = None
) -> None:
    """Return when there has been no session for a moment."""
    clock = clock or Clock()
    reminder, quiet_since = Reminder(log, clock), clock.now()
    while clock.now() - quiet_since < QUIET_SECONDS:
        if sessions := count():
            reminder.waiting(f"{sessions} session{'s' if sessions > 1 else ''} to end")
            quiet_since = clock.now()
        clock.sleep(POLL_SECONDS)


def main() -> None:
    """Entry point."""
    with program("leave", open_pod_log()) as log:
        wait_for_sessions(log)
        log("nobody is logged in any more: this login node ends")
