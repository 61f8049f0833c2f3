"""What ends the pause between two looks before its time."""

from __future__ import annotations

import threading
import time
from typing import Final

SHORTEST_SECONDS: Final = 0.1
"""Between two looks, however many programs ask for one."""
SHARE: Final = 4.0
"""A look that takes long, with thousands of nodes, is followed by a pause of this many times its length."""


class Wake:
    """Who asks is heard at once. Events of pods wait for as long as a look may come again in any case.

    A thousand pods that come have thousands of events, and each look asks slurmctld for all nodes: they were ten looks
    a second, as close as looks of a second each.
    """

    def __init__(self) -> None:
        self._asked, self._changed = threading.Event(), threading.Event()

    def ask(self) -> None:
        """One of slurmctld's programs wants a look."""
        self._asked.set()
        self._changed.set()

    def change(self) -> None:
        """A pod or a template has changed."""
        self._changed.set()

    def forget(self) -> None:
        """A look begins, which sees all of it."""
        self._asked.clear()
        self._changed.clear()

    def wait(self, seconds: float, quick: float) -> None:
        """Return after so many seconds, or when somebody asks, or after `quick` when something has changed.

        Whoever asks, and however often: no more than half of the time goes into looks.
        """
        rest = max(SHORTEST_SECONDS, quick / SHARE)
        time.sleep(rest)
        if not self._asked.wait(max(0.0, min(seconds, quick) - rest)):
            self._changed.wait(max(0.0, seconds - quick))
