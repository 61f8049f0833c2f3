"""A check that fails again and again has to be well for a while before its drain is lifted."""

from __future__ import annotations

import pytest

from images.health.contract import Result
from images.health.watch.decide import KUBERNETES, Finding, NodeView
from images.health.watch.flapping import WINDOW_SECONDS, Flapping, Hold, wait_of
from tests.unit.images.health.watch.views import NOW, OK, UNKNOWN, failed

REASON = "health/disks [node]: full"


class Node:
    """A node that the test drains and lifts."""

    def __init__(self) -> None:
        self.flapping = Flapping()
        self.time = NOW
        self.drained_at: float | None = None
        self.reason = REASON
        self.name = "w-0"

    def look(
        self, result: Result = OK, later: float = 2.0, *, declared: bool = False, since: float | None = None
    ) -> Hold | None:
        self.time += later
        check = self.reason.split("/")[1].split(" ")[0]
        drained = self.drained_at is not None
        view = NodeView(
            name=self.name,
            states=frozenset({"IDLE", "DRAIN"} if drained else {"IDLE"}),
            reason=self.reason if drained else "",
            reason_at=self.drained_at,
            findings={check: Finding(result=result, at=self.time, declared=declared, unwanted_since=since)},
        )
        holds = self.flapping.holds([view], self.time)
        assert len(holds) <= 1
        return holds[0] if holds else None

    def drain(self, *, declared: bool = False, since: float | None = None) -> None:
        self.time += 30
        self.drained_at = self.time
        assert self.look(failed(), declared=declared, since=since) is None

    def lift(self) -> None:
        self.flapping.lifted(self.name)
        self.drained_at = None
        self.look()

    def drains(self, count: int) -> None:
        for _ in range(count - 1):
            self.drain()
            self.lift()
        self.drain()


@pytest.mark.parametrize(
    ("drains", "seconds"), [(0, 0), (1, 0), (2, 60), (3, 120), (4, 240), (7, 1920), (8, 3600), (10**6, 3600)]
)
def test_the_wait_doubles_and_ends_at_an_hour(drains: int, seconds: float) -> None:
    assert wait_of(drains) == seconds


def test_the_first_drain_is_lifted_at_once() -> None:
    node = Node()
    node.drain()
    assert node.look(later=30) is None


def test_the_second_needs_a_minute_and_says_so_once() -> None:
    node = Node()
    node.drains(2)
    assert node.look(later=30) == Hold(node="w-0", check="disks", drains=2, seconds=60, is_new=True)
    hold = node.look(later=59)
    assert hold is not None
    assert not hold.is_new
    assert node.look(later=1) is None


@pytest.mark.parametrize("result", [failed(), UNKNOWN])
def test_a_break_starts_the_time_anew(result: Result) -> None:
    node = Node()
    node.drains(2)
    assert node.look(later=30) is not None
    assert node.look(later=50) is not None
    assert node.look(result) is None
    hold = node.look()
    assert hold is not None
    assert not hold.is_new
    assert node.look(later=59) is not None
    assert node.look(later=1) is None


def test_a_drain_that_is_looked_at_often_counts_once() -> None:
    node = Node()
    node.drain()
    for _ in range(20):
        assert node.look(failed()) is None
    assert node.look(later=30) is None


def test_a_drain_right_after_a_lifting_is_another_one() -> None:
    """A prolog may drain the node between two rounds."""
    node = Node()
    node.drain()
    node.flapping.lifted("w-0")
    node.drain()
    assert node.look(later=30) is not None


def test_another_check_and_another_node_have_counts_of_their_own() -> None:
    node = Node()
    node.drains(3)
    node.lift()
    node.reason = "health/dns [node]: no answer"
    node.drain()
    assert node.look(later=30) is None
    node.lift()
    node.reason, node.name = REASON, "w-1"
    node.drain()
    assert node.look(later=30) is None


def test_after_a_day_the_count_begins_anew() -> None:
    node = Node()
    node.drains(3)
    node.lift()
    node.time += WINDOW_SECONDS
    node.drain()
    assert node.look(later=30) is None
    assert sum(len(times) for times in node.flapping._drained.values()) == 1


def test_a_restart_forgets_how_long_to_wait() -> None:
    node = Node()
    node.drains(3)
    node.flapping = Flapping()
    assert node.look(later=30) is None


def test_somebody_who_cordons_a_machine_often_is_no_flapping_check() -> None:
    node = Node()
    node.reason = f"health/{KUBERNETES} [node]: machine m is cordoned"
    for _ in range(4):
        node.drain(declared=True)
        assert node.look(later=30) is None
        node.lift()


def test_a_condition_that_comes_and_goes_is_flapping() -> None:
    node = Node()
    node.reason = f"health/{KUBERNETES} [node]: machine m has the condition Maintenance"
    node.drain(declared=True, since=NOW)
    node.lift()
    node.drain(declared=True, since=NOW)
    assert node.look(later=30) is not None


def test_a_drain_whose_reason_changes_is_one_for_that_check() -> None:
    node = Node()
    node.drains(2)
    node.reason, node.drained_at = "health/dns [node]: no answer", node.time
    assert node.look(failed()) is None
    assert node.look(later=30) is None
    node.lift()
    node.drain()
    hold = node.look(later=30)
    assert hold is not None
    assert (hold.check, hold.drains) == ("dns", 2)


def test_a_record_that_vanished_is_no_drain_that_goes_on() -> None:
    node = Node()
    node.drain()
    node.flapping.holds([], node.time)
    node.drain()
    assert node.look(later=30) is not None
