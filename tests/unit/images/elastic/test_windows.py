"""In which window a pool is: by the clock of its time zone, on the days on which that is changed, too."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from config.sections.windows import Window as Written
from config.sections.windows import days_of, minutes_of
from images.common.elastic.view import Window, present, zone_of

BERLIN = ZoneInfo("Europe/Berlin")


def window(days: str, hours: str) -> Window:
    begin, end = minutes_of(hours)
    return Window(name=hours, days=frozenset(days_of(days)), begin=begin, end=end, least=4, most=8)


def hours_on(one: Window, zone: ZoneInfo, first: datetime, hours: int) -> list[int]:
    """Hours after a moment in which it is on."""
    start = first.astimezone(UTC)
    return [hour for hour in range(hours) if present([one], zone, (start + timedelta(hours=hour)).timestamp())]


@pytest.mark.parametrize(
    ("days", "hours"),
    [("mon-fri", "08:00-19:00"), ("sun", "22:00-06:00"), ("fri-mon", "00:00-24:00"), ("sat wed", "23:59-00:01")],
)
def test_it_is_on_in_the_very_minutes_in_which_the_stack_file_s_check_says_so(days: str, hours: str) -> None:
    minutes = Written(days=days, hours=hours, min=1).minutes
    monday = datetime(2026, 11, 23, tzinfo=UTC).timestamp()
    one = window(days, hours)
    found = {minute for minute in range(7 * 1440) if present([one], UTC, monday + 60 * minute + 59)}
    assert found == minutes


def test_when_clocks_are_put_back_an_hour_is_twice_as_long_and_none_is_missed() -> None:
    night = window("sun", "02:00-03:00")
    midnight = datetime(2026, 10, 25, tzinfo=BERLIN)
    assert hours_on(night, BERLIN, midnight, 12) == [2, 3]
    day = window("sun", "08:00-10:00")
    assert hours_on(day, BERLIN, midnight, 12) == [9, 10]


def test_when_clocks_are_put_forward_a_window_begins_and_ends_by_the_clock_all_the_same() -> None:
    midnight = datetime(2026, 3, 29, tzinfo=BERLIN)
    assert hours_on(window("sun", "02:00-03:00"), BERLIN, midnight, 12) == [], "there is no such hour on that day"
    assert hours_on(window("sun", "02:30-05:00"), BERLIN, midnight, 12) == [2, 3], "from 03:00 on"
    assert hours_on(window("sat", "22:00-06:00"), BERLIN, midnight - timedelta(hours=3), 12) == [1, 2, 3, 4, 5, 6, 7]


def test_a_zone_that_the_image_does_not_have_is_none() -> None:
    assert [zone_of(name) for name in ("Europe/Nowhere", "../../etc/passwd", "")] == [None, None, None]
    assert zone_of("UTC") is UTC
