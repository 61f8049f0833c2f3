"""Reservations: what Slurm would refuse, found without it."""

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
from tests.unit.config.messages import policy_complaint, with_sections

COURSE: dict[str, Any] = {"start": "2999-01-01T08:00", "duration": "4:00:00", "nodes": ["gpu-0"], "users": ["alice"]}


def without(*fields: str, **changes: Any) -> dict[str, Any]:
    return {"course": {**{key: value for key, value in COURSE.items() if key not in fields}, **changes}}


@pytest.mark.parametrize(
    ("reservations", "complaint"),
    [
        (without("duration"), "reservations.course: does not say when it ends; set end or duration"),
        (without("duration", end="2999-01-01T08:00"), "reservations.course.end: 2999-01-01T08:00 is not after"),
        (without("duration", end="2998-01-01T08:00"), "reservations.course.end: 2998-01-01T08:00 is not after"),
        (without(duration="0"), "reservations.course.duration: 0 is not after the start"),
        (without(start="2020-01-01T08:00"), "reservations.course.duration: is in the past: it ended 2020-01-01T12"),
        (without(node_count=1), "reservations.course.node_count: is given beside nodes; remove one of them"),
        (without("nodes"), "reservations.course: names no nodes; set nodes (names such as gpu-0) or node_count"),
        (without(nodes=["gpu-2"]), "reservations.course.nodes: 'gpu-2' is no node: the pool 'gpu' has 2 of them"),
        (without(nodes=["plain-0"]), "reservations.course.nodes: 'plain-0' is no node: the pool 'plain' has 0"),
        (without(nodes=["gqu-0"]), "reservations.course.nodes: 'gqu' is not a pool"),
        (without(nodes=["gpu-[0-1]"]), "reservations.course.nodes: 'gpu-[0' is not a pool of worker_nodes"),
        (without(nodes=["gpu-x"]), "reservations.course.nodes: 'gpu-x' is no node: the pool 'gpu' has 2 of them"),
        (without(nodes=["gpu-01"]), "reservations.course.nodes: 'gpu-01' is no node"),
        (without(nodes=["gpu-" + "9" * 5000]), "reservations.course.nodes: 'gpu-999"),
        (without(partition="gpus"), "reservations.course.partition: 'gpus' is not a partition"),
        (without(users=["alise"]), "reservations.course.users: 'alise' is not a declared user"),
        (without("users", accounts=["ml"]), "reservations.course.accounts: 'ml' is not an account"),
        (without("users"), "reservations.course: is for nobody; set users or accounts, or maintenance: true"),
        (without(start="2999-02-30T08:00"), "reservations.course.start: "),
        (without(start="tomorrow"), "reservations.course.start: "),
    ],
)  # fmt: skip
def test_what_slurm_would_refuse_is_named(reservations: dict[str, Any], complaint: str) -> None:
    assert policy_complaint(reservations=reservations).startswith(complaint)


def test_a_reservation_is_in_the_past_from_its_end_on() -> None:
    sections = with_sections(reservations=without(start="2026-05-01T08:00"))
    valid = {"reservations": load_config(with_sections(reservations=without())).reservations}
    valid = {
        "reservations": {"course": valid["reservations"]["course"].model_copy(update={"start": "2026-05-01T08:00"})}
    }
    config = load_config(with_sections())
    known = {name: getattr(config, name) for name in ("worker_nodes", "partitions", "users", "slurm", "images")}

    def at(hour: int, minute: int) -> list[str]:
        now = datetime(2026, 5, 1, hour, minute, tzinfo=UTC)
        return [str(problem) for problem in cross_check({**known, **valid}, sections, now)]

    assert at(11, 59) == []
    assert "is in the past" in at(12, 0)[0]


@given(st.integers(0, 999999), st.integers(0, 10**9 - 1))
def test_no_duration_is_too_long_to_be_understood(days: int, hours: int) -> None:
    reservation = Reservation(start="2026-01-01T00:00", duration=f"{days}-{hours}")
    times = window(reservation)
    assert times is not None
    assert times[0] <= times[1]


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        ("30", 1800),
        ("1:30", 90),
        ("1:30:00", 5400),
        ("2-12", 216_000),
        ("2-12:30", 217_800),
        ("1-00:00:01", 86_401),
        ("UNLIMITED", None),
        ("infinite", None),
    ],
)
def test_times_mean_what_slurm_means(limit: str, expected: int | None) -> None:
    assert seconds(limit) == expected


def test_no_limit_is_longer_than_any() -> None:
    assert longer("UNLIMITED", "1-0")
    assert not longer("1-0", "UNLIMITED")
    assert not longer("UNLIMITED", "INFINITE")
    assert longer("61", "1:00:00")
    assert not longer("60", "1:00:00")
