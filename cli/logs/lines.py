"""One line that somebody wrote at some time, and many of them in the order of time."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from cli.logs.naming import job_in
from cli.usage.times import TimeError, parse_time

_SECOND = 1_000_000_000
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(?:Z|\+00:00)?")
_LEVEL = re.compile(r"[\w.-]+: (fatal|error|warning|notice|verbose|debug)\d?: ", re.IGNORECASE)
"""As Slurm's daemons, munged and our own programs write it (docs/diagnose.md)."""
_SPAN = re.compile(r"(?:\d{1,9}[smhdw])+")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


@dataclass(frozen=True, kw_only=True)
class Line:
    """What one of many wrote."""

    at: int
    """Nanoseconds since 1970. Of what is known to the second only, the last one of that second: so it comes after what
    is known better, as it does where lines are sorted as text."""
    component: str
    """`worker`, `controller`, ...; `event` and `sacct` for what is no log."""
    place: str
    """`POD/CONTAINER`, or what an event is about."""
    text: str

    @property
    def time(self) -> str:
        """In UTC, to the millisecond where that is known."""
        seconds, rest = divmod(self.at, _SECOND)
        known = "" if rest == _SECOND - 1 else f".{rest // 1_000_000:03d}"
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}{known}Z"

    @property
    def source(self) -> str:
        """Who wrote it, in one word."""
        return f"{self.component}({self.place})"

    def __str__(self) -> str:
        return f"{self.time.ljust(24)} {self.source} {self.text}"

    def as_data(self) -> dict[str, Any]:
        """The line for scripts. Keys are only ever added (docs/diagnose.md)."""
        named = _LEVEL.match(self.text)
        return {
            "time": self.time,
            "component": self.component,
            "place": self.place,
            "text": self.text,
            "level": named[1].lower() if named else "info",
            "job": job_in(self.text),
        }


def nanoseconds(text: str) -> int | None:
    """A time as kubelet, Kubernetes and Slurm write it, all in UTC; None if it is none. datetime has no nanoseconds."""
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    try:
        whole = datetime.fromisoformat(match[1]).replace(tzinfo=UTC)
    except ValueError:  # the 30th of February
        return None
    fraction = int(match[2].ljust(9, "0")) if match[2] else _SECOND - 1
    return int(whole.timestamp()) * _SECOND + fraction


def parse_log(printed: str, component: str, place: str) -> list[Line]:
    """What `kubectl logs --timestamps` printed. What has no time of its own belongs to the line before it."""
    found: list[Line] = []
    for line in printed.removesuffix("\n").split("\n"):
        stamp, _, text = line.partition(" ")
        at = nanoseconds(stamp)
        if at is not None:
            found.append(Line(at=at, component=component, place=place, text=text))
        elif found:
            found.append(replace(found[-1], text=line))
    return found


def in_order(
    lines: Iterable[Line], *, since: datetime | None = None, until: datetime | None = None, tail: int | None = None
) -> list[Line]:
    """The lines of a time, each after those that were written before it, or the last ones of them."""
    first = 0 if since is None else int(since.timestamp() * 1000) * 1_000_000
    # What is known to the second stands at its end: it belongs to a time that ends within that second.
    last = None if until is None else int(until.timestamp() * 1000) * 1_000_000 + 999_999
    kept = [line for line in lines if line.at >= first and (last is None or line.at <= last)]
    kept.sort(key=lambda line: line.at)  # lines of one moment stay as their source has them
    return kept if tail is None else kept[max(len(kept) - tail, 0) :]


def when(text: str, now: datetime) -> datetime:
    """A moment, of so long ago (`90s`, `30m`, `1h`, `2d`, `1h30m`) or as these lines and Slurm's commands write it.

    Raises TimeError.
    """
    try:
        if _SPAN.fullmatch(text):
            parts = re.findall(r"(\d+)([smhdw])", text)
            return now - sum((timedelta(**{_UNITS[unit]: int(number)}) for number, unit in parts), timedelta())
        at = nanoseconds(text)
        if at is not None and text.endswith("Z"):
            return datetime.fromtimestamp(at // 1_000_000 / 1000 if "." in text else at // _SECOND, UTC)
        return parse_time(text, now)
    except (OverflowError, TimeError):
        raise TimeError(
            f"{text!r} is not a time: write 30m, 1h or 2d (ago), or a moment such as 2026-11-01T08:00 (UTC)"
        ) from None
