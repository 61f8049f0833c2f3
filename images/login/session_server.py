"""sessions: tells `elastic` how many sessions this login node has. The start of sshd starts it beside sshd.

Everybody may ask: users see on the login node itself who is logged in there. It takes no word from anybody.
"""

from __future__ import annotations

import os
import threading
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


def main() -> None:
    """Entry point."""
    with program("sessions") as log:
        keep_only(KEPT)
        start_server(answer, int(os.environ.get("SESSIONS_PORT", PORT)))
        log("counting the sessions")
        threading.Event().wait()


def answer(path: str) -> Answer:
    """The number, as text."""
    if path != PATH:
        return Answer("text/plain", "", HTTPStatus.NOT_FOUND)
    return Answer("text/plain", f"{all_sessions()}\n")
