"""Times as sacct takes them, and the steps of a report."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.usage.times import TimeError, intervals, parse_time

NOW = datetime(2026, 11, 21, 18, 30, tzinfo=UTC)  # a Saturday
START = datetime(2026, 11, 20, tzinfo=UTC)


@given(st.integers(0, 10**7), st.integers(1, 10**7), st.sampled_from(["day", "week", "month", None]))
def test_intervals_cover_the_time_without_gap_or_overlap(start: int, length: int, step: str | None) -> None:
    first = START + timedelta(seconds=start)
    last = first + timedelta(seconds=length)
    spans = intervals(first, last, step)
    assert spans[0][0] == first
    assert spans[-1][1] == last
    assert all(one[1] == other[0] for one, other in pairwise(spans))
    assert all(begin < end for begin, end in spans)


def test_weeks_begin_on_monday_and_months_on_the_first() -> None:
    first, last = datetime(2026, 11, 21, 12, tzinfo=UTC), datetime(2027, 1, 2, tzinfo=UTC)
    assert {begin.weekday() for begin, _ in intervals(first, last, "week")[1:]} == {0}
    assert [f"{begin:%m-%d %H}" for begin, _ in intervals(first, last, "month")] == ["11-21 12", "12-01 00", "01-01 00"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-01", "2026-11-01 00:00"),
        ("2026-11-01T08:15", "2026-11-01 08:15"),
        ("2026-11-01T08:15:00", "2026-11-01 08:15"),
        ("11/01/26", "2026-11-01 00:00"),
        ("now", "2026-11-21 18:30"),
        ("now-7days", "2026-11-14 18:30"),
        ("now - 2 hours", "2026-11-21 16:30"),
        ("NOW-1week", "2026-11-14 18:30"),
        ("now-60", "2026-11-21 18:29"),
        ("today", "2026-11-21 00:00"),
        ("midnight", "2026-11-21 00:00"),
        ("noon", "2026-11-21 12:00"),
    ],
)
def test_times_are_written_as_for_sacct(text: str, expected: str) -> None:
    assert f"{parse_time(text, NOW):%Y-%m-%d %H:%M}" == expected


@pytest.mark.parametrize("text", ["", "soon", "now-7fortnights", "2026-13-01", "7 days", "now-999999999weeks"])
def test_other_times_are_refused_with_examples(text: str) -> None:
    with pytest.raises(TimeError, match="write 2026-11-01"):
        parse_time(text, NOW)
