"""Times as Slurm's own commands take them. All in UTC, as in the pods."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from cli.errors import USAGE, Failure

YEAR_10000 = 253402300800
"""Seconds since 1970, from which on Python has no date: a job may be wanted to begin then."""

DEFAULT_PERIOD = timedelta(days=30)

UNITS = {
    "second": timedelta(seconds=1),
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(weeks=1),
}

_RELATIVE = re.compile(r"^now\s*([+-])\s*(\d{1,9})\s*([a-z]*)$")
_FORMATS = ("%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S")


class TimeError(ValueError):
    """A time that nobody understands."""


def parse_time(text: str, now: datetime) -> datetime:
    """A time as `sacct --starttime` takes it, or TimeError.

    `2026-11-01`, `2026-11-01T08:00[:00]`, `now`, `now-7days`, `today`. A number without a unit is seconds.
    """
    word = text.strip().lower()
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    names = {"now": now, "today": midnight}
    if word in names:
        return names[word]
    try:
        if match := _RELATIVE.fullmatch(word):
            sign, number, unit = match.groups()
            return now + int(f"{sign}{number}") * UNITS[unit.removesuffix("s") or "second"]
        for form in _FORMATS:
            try:
                return datetime.strptime(text.strip(), form).replace(tzinfo=UTC)
            except ValueError:
                continue
    except (OverflowError, KeyError):
        pass
    raise TimeError(f"{text!r} is not a time: write 2026-11-01, 2026-11-01T08:00, now-7days, today or now (all in UTC)")


def period_of(start: str | None, end: str | None, now: datetime) -> tuple[datetime, datetime]:
    """The time that counts, in whole seconds. What is still to come is cut off. Raises Failure."""
    now = now.replace(microsecond=0)
    try:
        last = now if end is None else parse_time(end, now)
        first = min(last, now) - DEFAULT_PERIOD if start is None else parse_time(start, now)
    except TimeError as error:
        raise Failure(str(error), code=USAGE) from error
    begin = f"the start, {first:%Y-%m-%dT%H:%M:%S}"
    if last <= first:
        message = f"the end, {last:%Y-%m-%dT%H:%M:%S}, is not after {begin} (UTC)"
        raise Failure(message, hint="change --start or --end", code=USAGE)
    if first >= now:
        raise Failure(f"{begin} (UTC), is still to come", hint="change --start", code=USAGE)
    return first, min(last, now)
