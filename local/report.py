"""How long work tells a person what it does, how far it is and how long it took.

`Report` is the protocol that the work is written against. `open_report` picks the terminal's form: a live line with
`rich` on a terminal, plain lines elsewhere (a CI log), where progress is printed at most every few seconds.
"""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, TextIO

from rich.console import Console
from rich.markup import escape

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from rich.status import Status

_PLAIN_INTERVAL_S = 5.0
_PLAIN_GROWTH = 1.25
_PLAIN_MOST_S = 300.0
"""A log gets a line after 5 s, and later ones further apart: a wait of days must not fill it."""


class Step(Protocol):
    """One piece of work in progress."""

    def progress(self, done: int, total: int, detail: str = "") -> None:
        """Say how far it is; `total` 0 means that nobody knows."""

    def note(self, text: str) -> None:
        """Add a few words to the line that is printed at the end."""


class Report(Protocol):
    """Where steps are told."""

    def step(self, title: str) -> AbstractContextManager[Step]:
        """Begin a step; leaving the context ends it, with its time."""

    def info(self, text: str) -> None:
        """Print one line that belongs to no step."""


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


class _PlainStep:
    def __init__(self, report: PlainReport, title: str) -> None:
        self._report = report
        self._title = title
        self.started = time.monotonic()
        self._last = self.started
        self._interval = _PLAIN_INTERVAL_S
        self.notes: list[str] = []

    def progress(self, done: int, total: int, detail: str = "") -> None:
        now = time.monotonic()
        if now - self._last < self._interval:
            return
        self._last = now
        self._interval = min(_PLAIN_GROWTH * self._interval, _PLAIN_MOST_S)
        told, elapsed = progress_text(done, total, detail), duration_text(now - self.started)
        self._report.info(f"  {self._title}{f': {told}' if told else ''}, {elapsed} so far")

    def note(self, text: str) -> None:
        self.notes.append(text)


class PlainReport:
    """Lines for logs: each step says when it ended and what it took; long ones also on the way."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout

    def info(self, text: str) -> None:
        """Print one line at once."""
        self._stream.write(text + "\n")
        self._stream.flush()

    @contextmanager
    def step(self, title: str) -> Iterator[Step]:
        """Print the step's end, or that it failed."""
        step = _PlainStep(self, title)
        try:
            yield step
        except BaseException:
            self.info(f"failed: {title} (after {duration_text(time.monotonic() - step.started)})")
            raise
        notes = "".join(f", {note}" for note in step.notes)
        self.info(f"{title}{notes} ({duration_text(time.monotonic() - step.started)})")


class _RichStep:
    def __init__(self, status: Status, title: str) -> None:
        self._status = status
        self._title = title
        self.started = time.monotonic()
        self.notes: list[str] = []

    def progress(self, done: int, total: int, detail: str = "") -> None:
        elapsed = duration_text(time.monotonic() - self.started)
        text = escape(progress_text(done, total, detail))
        self._status.update(f"{escape(self._title)} [dim]{text}, {elapsed}[/dim]")

    def note(self, text: str) -> None:
        self.notes.append(text)


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
        with self._console.status(escape(title)) as status:
            step = _RichStep(status, title)
            try:
                yield step
            except BaseException:
                taken = duration_text(time.monotonic() - step.started)
                self._console.print(f"[red]✗[/red] {escape(title)} [dim]failed after {taken}[/dim]")
                raise
        notes = escape("".join(f", {note}" for note in step.notes))
        taken = duration_text(time.monotonic() - step.started)
        self._console.print(f"[green]✓[/green] {escape(title)}{notes} [dim]{taken}[/dim]")


def open_report() -> Report:
    """Pick the form that suits standard output."""
    return RichReport() if sys.stdout.isatty() else PlainReport()
