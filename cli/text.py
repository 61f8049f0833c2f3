"""Words for people and by people: times, and what others have written, fit for a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

from rich.console import Console
from rich.markup import escape

from cli.errors import USAGE, Failure

_BRIEF = 200

_UNBROKEN = 100_000
"""Columns where no terminal has an end."""


def ago(seconds: float) -> str:
    """`12 s`, `4 min`, `3 h`, `2 d`, rounded down."""
    seconds = max(int(seconds), 0)
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size or (unit == "min" and seconds >= size):
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def plain(text: str) -> str:
    """One line, with single blanks."""
    return " ".join(printable(text).split())


def brief(text: str) -> str:
    """One line of at most 200 characters."""
    line = plain(text)
    return line if len(line) <= _BRIEF else f"{line[: _BRIEF - 3]}..."


def printable(text: str) -> str:
    """A text without control characters: what tools on nodes say must not move the cursor of whoever reads it."""
    return "".join(character if character.isprintable() else " " for character in text)


def say(line: str) -> None:
    """Print one line of Rich's markup, which no width of a terminal breaks."""
    Console(highlight=False, emoji=False).print(line, soft_wrap=True)


_STYLES: Mapping[str, str] = {"+": "green", "~": "yellow", "!": "yellow", "-": "red"}


def print_lines(lines: Iterable[str]) -> None:
    """Print lines that anybody may have written, each in the colour of the sign that it begins with."""
    for line in lines:
        say(f"[{_STYLES.get(line[:1], 'default')}]{escape(printable(line))}[/]")


def open_console() -> Console:
    """As wide as the terminal. What goes elsewhere, as to grep, stays on one line."""
    console = Console(highlight=False, emoji=False)
    if not console.is_terminal:
        console.width = _UNBROKEN
    return console


# ---------------------------------------------------------------- times as people write them, in UTC as in the pods

DEFAULT_PERIOD = timedelta(days=30)

_AGO = re.compile(r"(?:now ?- ?)?(\d{1,9}) ?([a-z]+)")
_UNITS = ("second", "minute", "hour", "day", "week")


def parse_time(text: str, now: datetime) -> datetime:
    """So long ago, as `30m`, `7d` or sacct's `now-7days`, or a moment: `2026-11-01[T08:00[:00]]`, `today`, `now`.

    Raises Failure.
    """
    word = text.strip().lower()
    if word in {"now", "today"}:
        return now if word == "now" else now.replace(hour=0, minute=0, second=0, microsecond=0)
    try:
        if match := _AGO.fullmatch(word):
            unit = next(name for name in _UNITS if match[2] in {name[0], name, f"{name}s"})
            return now - timedelta(**{f"{unit}s": int(match[1])})
        at = datetime.fromisoformat(text.strip())
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, StopIteration, OverflowError):
        message = f"{text!r} is not a time: write 30m, 1h or 2d (ago), now-7days, today, or 2026-11-01T08:00 (UTC)"
        raise Failure(message, code=USAGE) from None


def period_of(start: str | None, end: str | None, now: datetime) -> tuple[datetime, datetime]:
    """The time that counts, in whole seconds. What is still to come is cut off. Raises Failure."""
    now = now.replace(microsecond=0)
    last = now if end is None else parse_time(end, now)
    first = min(last, now) - DEFAULT_PERIOD if start is None else parse_time(start, now)
    if first >= min(last, now):
        message = f"the start, {first:%Y-%m-%dT%H:%M:%S}, is not before the end, or is still to come (UTC)"
        raise Failure(message, hint="change --start or --end", code=USAGE)
    return first, min(last, now)
