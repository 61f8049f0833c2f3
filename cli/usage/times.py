"""Times as Slurm's own commands take them, and the steps that a report is cut into. All in UTC, as in the pods."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise

UNITS = {
    "second": timedelta(seconds=1),
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(weeks=1),
}

STEPS = ("day", "week", "month")

_RELATIVE = re.compile(r"^now\s*([+-])\s*(\d{1,9})\s*([a-z]*)$")
_FORMATS = ("%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M", "%m/%d/%y", "%m/%d/%y-%H:%M")


class TimeError(ValueError):
    """A time that nobody understands."""


def parse_time(text: str, now: datetime) -> datetime:
    """A time as `sacct --starttime` takes it, or TimeError.

    `2026-11-01`, `2026-11-01T08:00[:00]`, `11/01/26`, `now`, `now-7days`, `today` or `midnight` (the last one), `noon`
    (today's).
    """
    word = text.strip().lower()
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    names = {"now": now, "today": midnight, "midnight": midnight, "noon": midnight + timedelta(hours=12)}
    if word in names:
        return names[word]
    try:
        match = _RELATIVE.fullmatch(word)
        if match is not None:
            return now + _span(*match.groups())
        for form in _FORMATS:
            try:
                return datetime.strptime(text.strip(), form).replace(tzinfo=UTC)
            except ValueError:
                continue
    except (OverflowError, KeyError):
        pass
    raise TimeError(f"{text!r} is not a time: write 2026-11-01, 2026-11-01T08:00, now-7days, today or now (all in UTC)")


def _span(sign: str, number: str, unit: str) -> timedelta:
    """What is added to now. A number without a unit is seconds, as in sacct(1). Raises KeyError for other units."""
    span = int(number) * UNITS[unit.removesuffix("s") or "second"]
    return -span if sign == "-" else span


def intervals(start: datetime, end: datetime, step: str | None) -> list[tuple[datetime, datetime]]:
    """The time from start to end, cut at each midnight, Monday or first of a month. Without a step: not cut."""
    cuts = [start, *_boundaries(start, end, step), end]
    return list(pairwise(cuts))


def _boundaries(start: datetime, end: datetime, step: str | None) -> Iterator[datetime]:
    """Beginnings of days, weeks or months after `start` and before `end`."""
    if step is None:
        return
    at = start.replace(hour=0, minute=0, second=0, microsecond=0)
    if step == "week":
        at -= timedelta(days=at.weekday())
    if step == "month":
        at = at.replace(day=1)
    while (at := _next(at, step)) < end:
        yield at


def _next(at: datetime, step: str) -> datetime:
    if step == "month":
        return (at + timedelta(days=32)).replace(day=1)
    return at + UNITS[step]
