"""Hours of the week in which an elastic pool has more nodes warm, or fewer nodes at most."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated
from zoneinfo import available_timezones

from pydantic import AfterValidator, BeforeValidator, Field

from config.base import Section

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")

WEEK = 7 * 24 * 60
"""Minutes."""

_DAY = 24 * 60
_RANGE = rf"({'|'.join(DAYS)})(-({'|'.join(DAYS)}))?"
_DAYS = rf"^{_RANGE}( {_RANGE})*$"
_HOURS = r"^([01][0-9]|2[0-3]):[0-5][0-9]-(([01][0-9]|2[0-3]):[0-5][0-9]|24:00)$"


def _days(given: object) -> object:
    if isinstance(given, str) and re.fullmatch(_DAYS, given):
        return given
    raise ValueError(f"is no days of the week: write mon-fri, or mon wed fri; they are {', '.join(DAYS)}")


def _hours(given: object) -> object:
    if not isinstance(given, str) or not re.fullmatch(_HOURS, given):
        raise ValueError("is no hours of a day: write 08:00-19:00, with two digits each; 22:00-06:00 ends the next day")
    begin, end = minutes_of(given)
    if begin == end:
        raise ValueError("begins when it ends; the whole day is 00:00-24:00, or leave hours out")
    return given


_REGIONS = (
    "Africa", "America", "Antarctica", "Arctic", "Asia", "Atlantic", "Australia", "Etc", "Europe", "Indian", "Pacific",
)  # fmt: skip
"""Other names, such as US/Eastern, are old ones. Those within these, such as Europe/Kiev, are in our images, too."""


def _zone(given: object) -> object:
    # By the list: a name that is looked up in the file system could be any path there.
    known = available_timezones() | {"UTC"}
    if isinstance(given, str) and given in known and (given == "UTC" or given.startswith(_REGIONS)):
        return given
    missing = "" if len(known) > 1 else "; this machine knows none but UTC, as it has no tzdata: pip install tzdata"
    raise ValueError(f"is no time zone: write a region and a city, as Europe/Berlin, or UTC{missing}")


Zone = Annotated[str, BeforeValidator(_zone)]
"""Name of a time zone in the IANA database: `Europe/Berlin`."""


def days_of(written: str) -> tuple[int, ...]:
    """Days of `mon-fri` or `mon wed fri` (0 is Monday), in order. `fri-mon` goes over the end of the week."""
    found = set()
    for part in written.split():
        first, _, last = part.partition("-")
        begin = DAYS.index(first)
        found |= {(begin + day) % 7 for day in range((DAYS.index(last or first) - begin) % 7 + 1)}
    return tuple(sorted(found))


def minutes_of(written: str) -> tuple[int, int]:
    """Begin and end of `08:00-19:00` in minutes of the day (24:00 is 1440). An end before the begin: the next day's."""
    first, last = (int(time[:2]) * 60 + int(time[3:]) for time in written.split("-"))
    return first, last


class Window(Section):
    """Hours on some days of the week."""

    days: Annotated[str, BeforeValidator(_days), Field(json_schema_extra={"pattern": _DAYS})] = "mon-sun"
    """Days on which it begins: `mon-fri`, `mon wed fri`, `sun`. Default: every day."""
    hours: Annotated[str, BeforeValidator(_hours), Field(json_schema_extra={"pattern": _HOURS})] = "00:00-24:00"
    """From when to when, on the clock of `timezone`: `08:00-19:00`; `22:00-06:00` ends the next day."""
    min: int | None = Field(default=None, ge=0, strict=True)
    """Nodes that are kept meanwhile even while no job is there. Default: `size.min`."""
    max: int | None = Field(default=None, ge=0, strict=True)
    """Nodes at most meanwhile, no more than `size.max`. Default: `size.max`. Those beyond it leave after their jobs;
    jobs that need more wait."""

    def _problem(self) -> str | None:
        neither = self.min is None and self.max is None
        return "has neither min nor max, so nothing would be different in it" if neither else None

    @property
    def name(self) -> str:
        """As people call it: `mon-fri 08:00-19:00`."""
        return f"{self.days} {self.hours}"

    @property
    def minutes(self) -> frozenset[int]:
        """Its minutes of the week, from Monday's first one."""
        begin, end = minutes_of(self.hours)
        length = (end - begin - 1) % _DAY + 1
        return frozenset((day * _DAY + begin + minute) % WEEK for day in days_of(self.days) for minute in range(length))


def _apart(windows: tuple[Window, ...]) -> tuple[Window, ...]:
    seen: dict[int, Window] = {}
    for window in windows:
        minutes = window.minutes
        if both := minutes & seen.keys():
            first = min(both)
            raise ValueError(
                f"has {seen[first].name!r} and {window.name!r}, which are both on at {clock(first)}; a pool is in one "
                "window at a time"
            )
        seen.update(dict.fromkeys(minutes, window))
    return windows


def clock(minute: int) -> str:
    """A minute of the week as people say it: `tue 08:00`."""
    return f"{DAYS[minute // _DAY]} {minute % _DAY // 60:02}:{minute % 60:02}"


Windows = Annotated[tuple[Window, ...], AfterValidator(_apart), Field(max_length=50)]
"""Windows of a pool, none of them at the time of another."""


def by_minutes(windows: tuple[Window, ...], otherwise: int) -> Mapping[int, int]:
    """Nodes that are kept -> minutes of a week in which it is so many. `otherwise`: outside of all windows."""
    found: dict[int, int] = {}
    left = WEEK
    for window in windows:
        length = len(window.minutes)
        kept = otherwise if window.min is None else window.min
        found[kept] = found.get(kept, 0) + length
        left -= length
    if left:
        found[otherwise] = found.get(otherwise, 0) + left
    return found
