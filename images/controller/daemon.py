"""slurmctld as a child of the supervisor, and whether it answers: one that does not keeps its turn for nothing."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Final

from images.common.files import write_atomically
from images.common.wait import Clock

END_SECONDS: Final = 30.0
"""From SIGTERM to SIGKILL for slurmctld."""

DEAD_SECONDS: Final = 5.0
"""For a killed slurmctld to be gone. One that hangs in the kernel, with the volume, runs no more either."""

SLOWEST_RESTART: Final = 10.0

ASK_SECONDS: Final = 5.0
"""Between two questions to slurmctld."""

ANSWER_SECONDS: Final = 10.0
"""For one answer."""

UNANSWERED: Final = 6
"""Questions one after the other: a minute or more. One that reads all nodes or users anew may be silent for a while."""

ENDED: Final = 6
"""Ends before the first answer, with ever longer pauses between: 8 s of them."""

ASKING: Final = Path("/run/slurmstack/asking.conf")
"""slurm.conf for the question, which needs no name: that of the active controller may lead elsewhere, or nowhere."""

_CONF: Final = "ClusterName=asking\nSlurmctldHost=localhost(127.0.0.1)\nSlurmUser=slurm\n"


class Trouble(StrEnum):
    """What may be better on another machine."""

    HANGS = f"slurmctld runs, and has not answered {UNANSWERED} times, one after the other"
    MUNGE = f"munged of this pod has not answered {UNANSWERED} times, one after the other"
    ENDS = f"slurmctld has ended {ENDED} times before it answered anything"


def answers() -> bool:
    """Ask slurmctld of this pod whether it is there."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        if not ASKING.exists():
            write_atomically(ASKING, _CONF)
        asked = subprocess.run(
            ["scontrol", "ping"], capture_output=True, text=True, check=False, timeout=ANSWER_SECONDS,
            env={**os.environ, "SLURM_CONF": str(ASKING)}, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        return " is UP" in asked.stdout  # its status may be lost to Daemon.reap
    return False


class Daemon:
    """slurmctld as a child."""

    def __init__(self, command: tuple[str, ...], log: Callable[[str], None], clock: Clock) -> None:
        self._command, self._log, self._clock = command, log, clock
        self._pid = 0
        self._pause, self._not_before = 0.25, 0.0
        self._has_answered = False
        self._silent = self._ended = self._unmunged = 0

    @property
    def trouble(self) -> Trouble | None:
        """Why another machine had better have a try at it. One that reads its state for long is in no trouble."""
        if self._has_answered and self._pid and self._silent >= UNANSWERED:
            return Trouble.HANGS
        if self._unmunged >= UNANSWERED:
            return Trouble.MUNGE
        return Trouble.ENDS if self._ended >= ENDED else None

    def note(self, *, answered: bool, munged: bool = True) -> None:
        """Whether it has answered a question; whether munged does, without which it does not even start."""
        self._unmunged = 0 if munged else self._unmunged + 1
        if answered:
            self._has_answered, self._silent, self._ended = True, 0, 0
        else:
            self._silent += 1

    def keep_up(self) -> None:
        """Start it if it does not run; ever more slowly while it ends at once."""
        self.reap()
        now = self._clock.now()
        if self._pid or now < self._not_before:
            return
        self._pid = os.posix_spawn(self._command[0], self._command, os.environ, setsid=True)
        self._not_before = now + self._pause
        self._pause = min(2 * self._pause, SLOWEST_RESTART)

    def reap(self) -> bool:
        """Whether it runs. What else has ended in this container is forgotten, too."""
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == self._pid:
                    self._pid = self._silent = 0
                    self._has_answered = False  # the next one may read its state for long
                    self._ended += 1
                    self._log(f"slurmctld has ended with {os.waitstatus_to_exitcode(ended[1])}")
        return bool(self._pid)

    def end(
        self, number: signal.Signals, seconds: float = END_SECONDS, hurries: Callable[[], object] = lambda: None
    ) -> None:
        """End it, and all that it has started; with SIGKILL at last, or when `hurries` says something true.

        One that hangs then is not waited for. `hurries` is asked every 0.05 s.
        """
        kill_at, pid = self._clock.now() + (0 if number == signal.SIGKILL else seconds), self._pid
        while pid and self.reap():
            late = self._clock.now() >= kill_at
            if self._clock.now() >= kill_at + DEAD_SECONDS:
                self._log("slurmctld is killed, and gone when the volume answers what it has asked")
                break
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL if late else number)
            for _ in range(20):
                if not self.reap():
                    break
                if not late and hurries():
                    kill_at = self._clock.now()
                    break
                self._clock.sleep(0.05)
        self._pause, self._not_before = 0.25, 0.0
        self._has_answered, self._silent, self._ended, self._unmunged = False, 0, 0, 0
