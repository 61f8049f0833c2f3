"""What somebody asks of the records: which groups, from when to when."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from cli.errors import USAGE, Failure
from cli.usage.times import TimeError, parse_time

DEFAULT_PERIOD = timedelta(days=30)


def refuse_both(*, as_json: bool, as_csv: bool) -> None:
    """Raises Failure where two forms of output are asked for."""
    if as_json and as_csv:
        raise Failure("--json and --csv contradict each other", hint="leave out one of them", code=USAGE)


def dimensions_of(by: str, known: Sequence[str]) -> tuple[str, ...]:
    """`account,user` as a tuple. Raises Failure for anything else than names that are known, each once."""
    names = tuple(name.strip() for name in by.split(","))
    for name in names:
        if name not in known:
            message = f"--by {by!r}: {name!r} is none of {', '.join(known)}"
            raise Failure(message, hint="several: account,user", code=USAGE)
    if len(set(names)) < len(names):
        raise Failure(f"--by {by!r} names one of them twice", code=USAGE)
    return names


def period_of(start: str | None, end: str | None, now: datetime) -> tuple[datetime, datetime]:
    """The time that counts, in whole seconds. What is still to come is cut off. Raises Failure."""
    now = now.replace(microsecond=0)
    try:
        last = now if end is None else parse_time(end, now)
        first = min(last, now) - DEFAULT_PERIOD if start is None else parse_time(start, now)
    except TimeError as error:
        raise Failure(str(error), code=USAGE) from error
    if last <= first:
        raise Failure(
            f"the end, {last:%Y-%m-%dT%H:%M:%S}, is not after the start, {first:%Y-%m-%dT%H:%M:%S} (UTC)",
            hint="change --start or --end",
            code=USAGE,
        )
    if first >= now:
        raise Failure(
            f"the start, {first:%Y-%m-%dT%H:%M:%S} (UTC), is still to come", hint="change --start", code=USAGE
        )
    return first, min(last, now)
