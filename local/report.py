"""How long work tells a person what it does, how far it is and how long it took.

`open_report` picks the terminal's form: a live line with `rich` on a terminal, plain lines elsewhere (a CI log), where
progress is printed at most every few seconds.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

from rich.console import Console
from rich.markup import escape

_PLAIN_INTERVAL_S = 5.0
_PLAIN_GROWTH = 1.25
_PLAIN_MOST_S = 300.0
"""A log gets a line after 5 s, and later ones further apart: a wait of days must not fill it."""


def progress_text(done: int, total: int, detail: str) -> str:
    """For example `120 of 480 (25%) k8s.io/api`."""
    known = f"{done} of {total} ({min(100, 100 * done // total)}%)" if total > 0 else ""
    counted = known or (str(done) if done else "")
    return " ".join(part for part in (counted, detail) if part)


def duration_text(seconds: float) -> str:
    """For example `0.4 s`, `12 s`, `3 min 05 s`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s"


class Step:
    """One piece of work in progress; `tell` shows how far it is, at first after `interval_s`."""

    def __init__(self, tell: Callable[[str, str], None], interval_s: float) -> None:
        self._started = self._printed_at = time.monotonic()
        self._tell = tell
        self._interval_s = interval_s
        self.notes = ""

    @property
    def taken(self) -> str:
        """The time since it began."""
        return duration_text(time.monotonic() - self._started)

    def progress(self, done: int, total: int, detail: str = "") -> None:
        """Say how far it is; `total` 0 means that nobody knows."""
        now = time.monotonic()
        if now - self._printed_at >= self._interval_s:
            self._printed_at = now
            self._interval_s = min(_PLAIN_GROWTH * self._interval_s, _PLAIN_MOST_S)
            self._tell(progress_text(done, total, detail), self.taken)

    def note(self, text: str) -> None:
        """Add a few words to the line that is printed at the end."""
        self.notes += f", {text}"


class PlainReport:
    """Lines for logs: each step says when it ended and what it took; long ones also on the way."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout

    def info(self, text: str) -> None:
        """Print one line at once. Where it cannot be written (a full disk, a reader that is gone) the work goes on."""
        with suppress(OSError):
            self._stream.write(text + "\n")
            self._stream.flush()

    @contextmanager
    def step(self, title: str) -> Iterator[Step]:
        """Print the step's end, or that it failed."""
        step = Step(
            lambda text, taken: self.info(f"  {title}{text and f': {text}'}, {taken} so far"), _PLAIN_INTERVAL_S
        )
        try:
            yield step
        except BaseException:
            self.info(f"failed: {title} (after {step.taken})")
            raise
        self.info(f"{title}{step.notes} ({step.taken})")


class RichReport:
    """One live line per step on a terminal, replaced by a tick and the time when it ends."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False)

    def info(self, text: str) -> None:
        """Print one line above the live one."""
        self._console.print(escape(text))

    @contextmanager
    def step(self, title: str) -> Iterator[Step]:
        """Show the step while it runs; steps are not nested."""
        name = escape(title)
        with self._console.status(name) as status:
            step = Step(lambda text, taken: status.update(f"{name} [dim]{escape(text)}, {taken}[/dim]"), 0)
            try:
                yield step
            except BaseException:
                self._console.print(f"[red]✗[/red] {name} [dim]failed after {step.taken}[/dim]")
                raise
        self._console.print(f"[green]✓[/green] {name}{escape(step.notes)} [dim]{step.taken}[/dim]")


Report = PlainReport | RichReport
"""Where steps are told."""


def open_report() -> Report:
    """Pick the form that suits standard output."""
    return RichReport() if sys.stdout.isatty() else PlainReport()
