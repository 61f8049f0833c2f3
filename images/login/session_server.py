"""sessions: tells `elastic` how many sessions this login node has. The start of sshd starts it beside sshd.

Everybody may ask: users see on the login node itself who is logged in there. It takes no word from anybody.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Final

from images.common.boundary import keep_only
from images.common.http_server import Answer, start_server
from images.common.process import program
from images.login.sessions import all_sessions

PORT: Final = 8819
"""As slurm/names.py has it."""

PATH: Final = "/sessions"

KEPT: Final = "NET_BIND_SERVICE"
"""The kernel lets nobody look into a process who lacks one of its capabilities, and root in the jail has not this one:
it would otherwise get outside of the jail by this program, which is root's, too."""

COUNTED_SECONDS: Final = 0.25
"""For which a count is told again: it takes a fifth of a second where a user has 4,000 processes, and anybody asks."""

PAUSE_SECONDS: Final = 1.0
"""Before the program is started again that counts."""


class Count:
    """The latest one."""

    def __init__(self, count: Callable[[], int] = all_sessions) -> None:
        self._count = count
        self._lock = threading.Lock()
        self._until, self._sessions = 0.0, 0

    def __call__(self, path: str) -> Answer:
        """The number, as text."""
        if path != PATH:
            return Answer("text/plain", "", HTTPStatus.NOT_FOUND)
        with self._lock:
            if time.monotonic() >= self._until:
                self._sessions = self._count()
                self._until = time.monotonic() + COUNTED_SECONDS
            return Answer("text/plain", f"{self._sessions}\n")


def whose(address: str) -> str:
    """Users of this login node have 16 million addresses to connect from, all of them its own."""
    return "127" if address.startswith("127.") else address


def _fork() -> int:
    """As `os.fork`; -1 where there is no room for another process just now."""
    try:
        return os.fork()
    except OSError:
        return -1


def main() -> None:
    """Entry point."""
    with program("sessions") as log:
        keep_only(KEPT)
        while child := _fork():  # somebody may kill it, or the kernel, where memory is short
            if child > 0:
                os.waitpid(child, 0)
            log("the count of the sessions has ended: starting it again")
            time.sleep(PAUSE_SECONDS)
        start_server(Count(), int(os.environ.get("SESSIONS_PORT", PORT)), whose=whose)
        log("counting the sessions")
        threading.Event().wait()
