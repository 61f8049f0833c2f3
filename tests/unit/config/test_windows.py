"""Windows of an elastic pool: how they are written, what is refused, and for how long they hold."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from config import load_config
from config.sections.windows import Window, days_of
from config.sections.workers import WorkerPool
from tests.stacks import dev, with_change
from tests.unit.config.messages import complaints

WHERE = "worker_nodes.default"


def sections(windows: Any, **more: Any) -> dict[str, Any]:
    found = with_change(dev(), f"{WHERE}.size", {"min": 1, "max": 8})
    for key, value in {"windows": windows, **more}.items():
        found = with_change(found, f"{WHERE}.{key}", value)
    return found


def pool(windows: Any, **more: Any) -> WorkerPool:
    return load_config(sections(windows, **more)).worker_nodes["default"]


def test_as_people_write_them_no_quotes_are_needed() -> None:
    written = yaml.safe_load("[{days: mon-fri, hours: 08:00-19:00, min: 4}, {days: sat sun, max: 2}]")
    first, second = pool(written, timezone="Europe/Berlin").windows
    assert (first.name, first.min, first.max) == ("mon-fri 08:00-19:00", 4, None)
    assert (second.name, second.min, second.max) == ("sat sun 00:00-24:00", None, 2)


@pytest.mark.parametrize(
    ("written", "days"),
    [("mon-fri", [0, 1, 2, 3, 4]), ("sat-mon", [0, 5, 6]), ("wed mon fri-sat", [0, 2, 4, 5]), ("sun-sun", [6])],
)
def test_days_go_over_the_end_of_the_week(written: str, days: list[int]) -> None:
    assert [*days_of(written)] == days


WRONG = {
    "no day": ([{"days": "mo-fr", "min": 1}], "windows.0.days: 'mo-fr' is no days of the week: write mon-fri, or mon"),
    "a list in one text": ([{"days": "sat,sun", "min": 1}], "windows.0.days: 'sat,sun' is no days of the week"),
    "one digit": (
        [{"hours": "8:00-19:00", "min": 1}],
        "windows.0.hours: '8:00-19:00' is no hours of a day: write 08:00",
    ),
    "a number": ([{"hours": 1140, "min": 1}], "windows.0.hours: 1140 is no hours of a day"),
    "after the day": ([{"hours": "08:00-24:30", "min": 1}], "windows.0.hours: '08:00-24:30' is no hours of a day"),
    "no time": ([{"hours": "08:00-08:00", "min": 1}], "windows.0.hours: '08:00-08:00' begins when it ends"),
    "nothing": ([{"days": "mon"}], "windows.0: has neither min nor max"),
    "more than size.max": ([{"max": 9}], ": has the window 'mon-sun 00:00-24:00' with max 9, and size.max is 8"),
    "min above max": ([{"min": 4, "max": 2}], ": has the window 'mon-sun 00:00-24:00' with min 4 and max 2"),
    "min above size.max": ([{"min": 9}], ": has the window 'mon-sun 00:00-24:00' with min 9 and max 8"),
    "max below size.min": ([{"max": 0}], ": has the window 'mon-sun 00:00-24:00' with min 1 and max 0"),
    "below nothing": ([{"min": -1}], "windows.0.min: -1 is not allowed"),
    "a slip": ([{"day": "mon", "min": 1}], "windows.0.day: 'day' is not a known key"),
    "both at a time": (
        [{"days": "mon-fri", "hours": "22:00-06:00", "min": 2}, {"days": "sat", "hours": "05:00-12:00", "max": 2}],
        "has 'mon-fri 22:00-06:00' and 'sat 05:00-12:00', which are both on at sat 05:00",
    ),
    "over the week's end": (
        [{"days": "sun", "hours": "23:00-01:00", "min": 2}, {"days": "mon", "max": 2}],
        "has 'sun 23:00-01:00' and 'mon 00:00-24:00', which are both on at mon 00:00",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_window_is_told_in_one_line(name: str) -> None:
    windows, said = WRONG[name]
    (told,) = complaints(sections(windows))
    assert said in told


@pytest.mark.parametrize("zone", ["Berlin", "US/Eastern", "../../etc/passwd", "localtime", "", 1, "europe/berlin"])
def test_only_zones_that_the_images_have_are_taken(zone: object) -> None:
    (told,) = complaints(sections([{"min": 2}], timezone=zone))
    assert told.startswith(f"{WHERE}.timezone: ")
    assert "is no time zone: write a region and a city, as Europe/Berlin, or UTC" in told


def test_windows_of_a_pool_of_a_fixed_size_are_refused() -> None:
    (told,) = complaints(with_change(dev(), f"{WHERE}.windows", [{"min": 1}]))
    assert "has windows, which is for elastic pools" in told


def test_a_window_that_ends_when_another_begins_is_beside_it() -> None:
    pool([{"hours": "22:00-06:00", "max": 2}, {"hours": "06:00-22:00", "min": 3}])


def test_nodes_that_are_there_in_any_case_are_those_of_the_hour_with_the_fewest() -> None:
    warm = pool([{"days": "mon-fri", "hours": "08:00-19:00", "min": 4}, {"days": "sat sun", "min": 0}])
    assert {kept: minutes / 60 for kept, minutes in warm.kept.items()} == {4: 55, 0: 48, 1: 65}
    assert (warm.least, warm.most) == (0, 8)
    assert {kept: minutes / 60 for kept, minutes in pool([{"min": 2}]).kept.items()} == {2: 168}


def test_minutes_of_a_night() -> None:
    night = Window(days="sun", hours="23:30-00:30", min=1)
    assert night.minutes == {*range(7 * 1440 - 30, 7 * 1440), *range(30)}
