"""How many login nodes there are to be, by their sessions and by those that leave."""

from __future__ import annotations

from collections.abc import Collection

from config import load_config
from images.elastic.logins import Bounds, Seen, is_roomy, replicas_wanted
from slurm.elastic import login_settings
from tests.stacks import dev

BOUNDS = Bounds(least=1, most=5, sessions_per_node=20, idle_seconds=600.0)
LONG = 600.0


def wanted(
    replicas: int, sessions: int, *, roomy: float = 0.0, leaving: Collection[int] = (), known: bool = True,
    bounds: Bounds = BOUNDS,
) -> int:  # fmt: skip
    seen = Seen(replicas=replicas, leaving=leaving, sessions=sessions, all_known=known)
    return replicas_wanted(bounds, seen, roomy)


def test_there_are_as_many_as_the_sessions_need_and_never_more_than_max() -> None:
    for replicas, sessions, expected in ((1, 0, 1), (1, 20, 1), (1, 21, 2), (2, 41, 3), (1, 75, 4), (1, 10**9, 5)):
        assert wanted(replicas, sessions) == expected, (replicas, sessions)
    assert wanted(2 * 10**9, 0) == 5


def test_one_less_would_do_where_its_room_is_three_quarters_full() -> None:
    for replicas, sessions, roomy in ((2, 15, True), (2, 16, False), (3, 30, True), (3, 31, False), (1, 0, False)):
        assert is_roomy(BOUNDS, Seen(replicas=replicas, leaving=(), sessions=sessions, all_known=True)) is roomy
        assert wanted(replicas, sessions, roomy=LONG) == replicas - roomy
        assert wanted(replicas, sessions, roomy=LONG - 1) == replicas


def test_none_leaves_while_a_node_does_not_say_how_many_sessions_it_has() -> None:
    assert wanted(2, 0, roomy=LONG, known=False) == 2
    assert wanted(2, 41, known=False) == 3, "those that are known are enough to want more"


def test_other_bounds_take_effect_at_once() -> None:
    assert wanted(1, 0, bounds=Bounds(least=3, most=5, sessions_per_node=20, idle_seconds=LONG)) == 3
    assert wanted(5, 100, bounds=Bounds(least=1, most=2, sessions_per_node=20, idle_seconds=LONG)) == 2


def test_one_that_leaves_takes_no_session_and_its_place_is_another_s() -> None:
    assert wanted(2, 21, leaving={1}) == 3
    assert wanted(3, 21, leaving={1}) == 3
    assert wanted(3, 10, leaving={1}, roomy=LONG) == 1, "the one that leaves is not made anew"
    assert wanted(1, 5, leaving={0}) == 2, "the only one leaves: its machine is drained"


def test_those_that_leave_count_for_max_but_there_are_always_min_that_take_sessions() -> None:
    assert wanted(5, 1000, leaving={3}) == 5
    assert wanted(5, 1000, leaving={1, 2, 3, 4}) == 5
    assert wanted(5, 0, leaving={0, 1, 2, 3, 4}) == 6
    few = Bounds(least=1, most=1, sessions_per_node=20, idle_seconds=LONG)
    assert wanted(1, 50, leaving={0}, bounds=few) == 2


def test_the_program_reads_what_the_stack_file_says() -> None:
    login = {"size": {"max": 7}, "sessions_per_node": 3, "idle_timeout": "2m"}
    text = login_settings(load_config(dev() | {"login": login}).login)
    assert Bounds.parse(text) == Bounds(least=1, most=7, sessions_per_node=3, idle_seconds=120.0)
