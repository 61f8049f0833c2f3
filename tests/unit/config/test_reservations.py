"""Times of reservations and of Slurm."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config import load_config
from config.base import longer, seconds
from config.rules.jobs import window
from config.rules.together import cross_check
from config.sections.scheduling import Reservation
from tests.unit.config.messages import complaints, with_sections

COURSE: dict[str, Any] = {"start": "2026-05-01T08:00", "duration": "4:00:00", "nodes": ["gpu-0"], "users": ["alice"]}


def test_a_reservation_is_in_the_past_from_its_end_on() -> None:
    config = load_config(with_sections())
    known = {name: getattr(config, name) for name in ("worker_nodes", "partitions", "users", "slurm", "images")}
    known["reservations"] = {"course": Reservation.model_validate({**COURSE, "nodes": ("gpu-0",), "users": ("alice",)})}

    def at(hour: int, minute: int) -> list[str]:
        now = datetime(2026, 5, 1, hour, minute, tzinfo=UTC)
        return [str(problem) for problem in cross_check(known, with_sections(reservations={"course": COURSE}), now)]

    assert at(11, 59) == []
    assert "is in the past" in at(12, 0)[0]


def test_a_number_of_a_node_may_have_any_length() -> None:
    endless = {**COURSE, "start": "2999-05-01T08:00", "nodes": ["gpu-" + "9" * 5000]}
    assert complaints(with_sections(reservations={"c": endless}))[0].startswith("reservations.c.nodes: 'gpu-999")


@given(st.integers(0, 999999), st.integers(0, 10**9 - 1))
def test_no_duration_is_too_long_to_be_understood(days: int, hours: int) -> None:
    times = window(Reservation(start="2026-01-01T00:00", duration=f"{days}-{hours}"))
    assert times is not None
    assert times[0] <= times[1]


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        ("30", 1800), ("1:30", 90), ("1:30:00", 5400), ("2-12", 216_000), ("2-12:30", 217_800), ("1-00:00:01", 86_401),
        ("UNLIMITED", None), ("infinite", None),
    ],
)  # fmt: skip
def test_times_mean_what_slurm_means(limit: str, expected: int | None) -> None:
    assert seconds(limit) == expected


def test_no_limit_is_longer_than_any() -> None:
    longest = (
        ["60", "1:00:00"],
        ["61", "1:00:00"],
        ["1-0", "UNLIMITED"],
        ["UNLIMITED", "1-0"],
        ["UNLIMITED", "INFINITE"],
    )
    assert [longer(one, two) for one, two in longest] == [False, True, False, True, False]
