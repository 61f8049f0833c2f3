"""Windows: hours of the week in which a pool has other bounds. Which one it is in follows from the time alone.

So a restart, a clock that jumps, and the days on which clocks are changed need no care: a window is on whenever the
clock on the wall says so. In the hour that a clock repeats it is on twice; hours that a clock leaves out it lacks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

DAY: Final = 24 * 60
"""Minutes."""


@dataclass(frozen=True, kw_only=True)
class Window:
    """Some hours on some days."""

    name: str
    """As the stack file has it: `mon-fri 08:00-19:00`."""
    days: frozenset[int]
    """On which it begins; 0 is Monday."""
    begin: int
    end: int
    """In minutes of the day, the second one not in it. Where it is not after the first one, of the next day."""
    least: int
    """Nodes that stay up without jobs meanwhile."""
    most: int
    """Nodes at most meanwhile."""

    def is_on(self, at: datetime) -> bool:
        """Whether a clock on the wall says that it is."""
        day, minute = at.weekday(), at.hour * 60 + at.minute
        if self.begin < self.end:
            return day in self.days and self.begin <= minute < self.end
        return (day in self.days and minute >= self.begin) or ((day - 1) % 7 in self.days and minute < self.end)


def windows_in(said: Iterable[Mapping[str, Any]]) -> tuple[Window, ...]:
    """As slurm/elastic.py writes them. Raises ValueError, KeyError, TypeError."""
    return tuple(
        Window(
            name=str(one["name"]),
            days=frozenset(int(day) for day in one["days"]),
            begin=int(one["begin"]),
            end=int(one["end"]),
            least=int(one["min"]),
            most=int(one["max"]),
        )
        for one in said
    )


def zone_of(name: str) -> tzinfo | None:
    """The time zone; None where this image has none of that name."""
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def present(windows: Iterable[Window], zone: tzinfo, now: float) -> Window | None:
    """The one that is on. `now`: seconds since 1970."""
    at = datetime.fromtimestamp(now, zone)
    return next((window for window in windows if window.is_on(at)), None)
