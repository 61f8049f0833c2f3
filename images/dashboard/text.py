"""Words on the page: what users wrote, made fit to be shown, and times as people say them."""

from __future__ import annotations

import unicodedata
from datetime import UTC, datetime

LONGEST = 200
"""Letters of a name or a reason that are shown; Slurm takes far longer ones."""


def clean(text: str) -> str:
    """Text of a user, in which nothing hides or turns the order of letters around. It still has to be escaped."""
    if len(text) <= LONGEST and text.isascii() and text.isprintable():
        return text  # nearly all, and 10,000 jobs have many
    shown = "".join(
        "\N{REPLACEMENT CHARACTER}" if unicodedata.category(letter)[0] == "C" else letter
        for letter in text[: LONGEST + 1]
    )
    return shown if len(shown) <= LONGEST else shown[: LONGEST - 1] + "…"


def number(text: str) -> int:
    """The number in a field, 0 where there is none: `12`, `12+`, `N/A`."""
    digits = text.strip().rstrip("+")
    return int(digits) if digits.isascii() and digits.isdecimal() else 0


def gibibytes(mebibytes: int) -> str:
    """As `0.9` or `512`."""
    return f"{mebibytes / 1024:.1f}" if mebibytes < 10 * 1024 else f"{mebibytes / 1024:.0f}"


def duration(seconds: float) -> str:
    """As `4 min` or `2 d 3 h`: at most two units, rounded down."""
    left = max(0, int(seconds))
    if left < 60:
        return f"{left} s"
    units = ((86_400, "d"), (3_600, "h"), (60, "min"))
    first = next(index for index, (size, _) in enumerate(units) if left >= size)
    parts = []
    for size, name in units[first : first + 2]:
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count} {name}")
    return " ".join(parts)


def moment(seconds: int) -> str:
    """A time in UTC, to the minute. Slurm takes later ones from users than calendars have."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (ValueError, OverflowError, OSError):
        return "beyond the year 9999"
