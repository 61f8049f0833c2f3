"""Windows of an elastic pool: how they are written, what is refused, and for how long they hold."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from config import load_config
from config.sections.windows import Window, days_of
from config.sections.workers import WorkerPool
from tests.stacks import dev, with_change

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
