"""Shows something again and again, until somebody has seen enough."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

EVERY = 5.0
"""Seconds between two rounds."""


def watch(look: Callable[[], RenderableType], show: Callable[[], None], *, every: float, redraw: bool = True) -> None:
    """Until Ctrl-C: on a terminal, with `redraw`, show what `look` returns in place of the last; else call `show`.

    The terminal is given back as it was, also after SIGTERM. `every`: seconds from the end of a round to the next.
    """
    console = Console(highlight=False, emoji=False, markup=False)
    with suppress(KeyboardInterrupt), ended_by(signal.SIGTERM):
        if not (console.is_terminal and redraw):
            while True:
                show()
                sys.stdout.flush()
                time.sleep(every)
        with Live(Text("..."), console=console, screen=True, auto_refresh=False) as live:
            while True:
                head = Text(f"every {every:g} s, {time.strftime('%H:%M:%S')}; Ctrl-C ends", style="dim")
                live.update(Group(head, look()), refresh=True)
                time.sleep(every)


@contextmanager
def ended_by(number: signal.Signals) -> Iterator[None]:
    """Let this signal do what Ctrl-C does."""

    def interrupt(_: int, __: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(number, interrupt)
    try:
        yield
    finally:
        signal.signal(number, before)
