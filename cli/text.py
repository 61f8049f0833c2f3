"""Words for people: times, and what others have written, fit for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rich.console import Console
from rich.markup import escape

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
