"""Slurm's notation of time spans."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

_UNLIMITED = frozenset({"INFINITE", "UNLIMITED"})
_PATTERN = (
    r"^(\d{1,9}|\d{1,9}:\d\d|\d{1,9}:\d\d:\d\d|\d{1,6}-\d{1,9}|\d{1,6}-\d{1,9}:\d\d|\d{1,6}-\d{1,9}:\d\d:\d\d"
    r"|[Uu][Nn][Ll][Ii][Mm][Ii][Tt][Ee][Dd]|[Ii][Nn][Ff][Ii][Nn][Ii][Tt][Ee])$"
).replace(r"\d", "[0-9]")  # digits of other scripts are none to Slurm
_TIME = re.compile(_PATTERN)


def _time_limit(value: str) -> str:
    if _TIME.fullmatch(value):
        return value
    raise ValueError(
        "is not a Slurm time: minutes, [hours:]minutes:seconds, days-hours[:minutes[:seconds]] or UNLIMITED"
    )


TimeLimit = Annotated[str, AfterValidator(_time_limit), Field(json_schema_extra={"pattern": _PATTERN})]
"""Slurm's notation: `30` (minutes), `1:30:00`, `1-00:00:00` (days-hours:minutes:seconds), `UNLIMITED`."""


def seconds(limit: str) -> int | None:
    """Seconds of a TimeLimit; None if there is no limit."""
    if limit.upper() in _UNLIMITED:
        return None
    days, dash, rest = limit.rpartition("-")
    parts = [int(part) for part in rest.split(":")]
    if dash:  # days-hours[:minutes[:seconds]]
        hours, minutes, secs = (*parts, 0, 0)[:3]
    elif len(parts) == 3:
        hours, minutes, secs = parts
    else:  # minutes[:seconds]
        hours, (minutes, secs) = 0, (*parts, 0)[:2]
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + secs


def longer(limit: str, other: str) -> bool:
    """Whether one span is longer than another."""
    most = seconds(other)
    span = seconds(limit)
    return most is not None and (span is None or span > most)


_SPAN_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_SPAN_PATTERN = r"^[1-9][0-9]{0,6}[smhd]$"


def _span(value: object) -> object:
    if isinstance(value, str) and re.fullmatch(_SPAN_PATTERN, value):
        return value
    raise ValueError("is not a span of time: a number with a unit, such as 90s, 10m or 2h")


Span = Annotated[str, BeforeValidator(_span), Field(json_schema_extra={"pattern": _SPAN_PATTERN})]
"""A span of time as Prometheus and Kubernetes write it: `90s`, `10m`, `2h`, `1d`."""


def span_seconds(span: str) -> int:
    """Seconds of a Span."""
    return int(span[:-1]) * _SPAN_UNITS[span[-1]]


def span_of(shortest: int, longest: int) -> AfterValidator:
    """Bounds of a Span in seconds."""

    def check(span: str) -> str:
        if not shortest <= span_seconds(span) <= longest:
            raise ValueError(f"is out of range: {shortest}s to {longest}s")
        return span

    return AfterValidator(check)
