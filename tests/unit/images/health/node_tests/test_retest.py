"""What is done about a node that is measured again, in every state in which it may be found."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from images.health.contract import Status
from images.health.node_tests.catalog import TESTS
from images.health.node_tests.plan import NodeView, TestJob, plan
from images.health.node_tests.retest import RETEST_SECONDS, Move, Retest, Step, due, move, own
from images.health.slurm import Reservation
from tests.unit.images.health.node_tests.views import NOW, job, node, policy, record, started, waits

REASON = "health/cpu-speed [hardware]: events 212 events/s (at least 420 expected)"
LONG = int(RETEST_SECONDS)
RETEST = Retest(node="w-0", test="cpu-speed", last=NOW - 2000, drained_at=NOW - 1900, reason=REASON)
OLD = {"cpu-speed": record(Status.FAIL, ago=2000)}


def drained(*states: str, ago: int = 1900, reason: str = REASON, **fields: Any) -> NodeView:
    view = node("w-0", *(states or ("IDLE", "DRAIN")), **{"records": OLD, **fields})
    return replace(view, reason=reason, reason_at=NOW - ago)


def moved(view: NodeView | None, *jobs: TestJob, unread: bool = False) -> Move:
    return move(RETEST, view, jobs, TESTS, NOW, unread=unread)


def wanted(*views: NodeView, **given: Any) -> list[str]:
    usual: dict[str, Any] = {"busy": [], "reserved": [], "tests": TESTS, "now": NOW}
    return [retest.node for retest in due(views, **{**usual, **given})]


def test_a_node_that_is_drained_for_a_test_is_measured_again_half_an_hour_after_drain_and_run() -> None:
    assert list(due([drained()], [], [], TESTS, NOW)) == [RETEST]
    for ago, last in ((LONG, LONG), (LONG, LONG + 1), (LONG + 1, LONG)):
        assert wanted(drained(ago=ago, records={"cpu-speed": record(Status.FAIL, ago=last)}))
    for ago, last in ((LONG - 1, LONG), (LONG, LONG - 1)):
        assert not wanted(drained(ago=ago, records={"cpu-speed": record(Status.FAIL, ago=last)}))
    assert wanted(drained(records={})), "the record is lost"
    assert wanted(drained(ago=9, records={"cpu-speed": record(Status.FAIL, ago=9)}), after=9.0)


def test_other_nodes_are_left_alone() -> None:
    for view in (
        drained(reason="fan is replaced on Monday"),
        drained(reason="health/disks [node]: full"),
        drained(reason="health/nccl-pair [hardware]: slow", gpus=8),
        drained(reason="health/nccl-node [hardware]: slow", gpus=0),
        drained(reason="lifted: health/cpu-speed"),
        replace(drained(), reason_at=0),
        drained("IDLE"),
        drained("MIXED", "DRAIN"),
        drained("IDLE", "DRAIN", "RESERVED"),
        drained("DOWN", "DRAIN"),
        drained("IDLE", "FAIL"),
        drained("IDLE", "DRAIN", "SOMETHING_NEW"),
        drained(partitions=()),
    ):
        assert not wanted(view), view


def test_the_reservation_tells_all_and_one_of_somebody_else_is_none_of_ours() -> None:
    for retest in (RETEST, replace(RETEST, last=0), replace(RETEST, reason="health/cpu-speed: a: b Comment=c")):
        assert own(Reservation(name=retest.name, nodes="w-0", comment=retest.comment)) == retest
    for name, nodes, comment in [
        ("health-test-w-0", "w-0", "ask Bob"),
        ("health-test-w-0", "w-[0-1]", RETEST.comment),
        ("course", "w-0", RETEST.comment),
        ("health-test-w-0", "w-0", RETEST.comment.replace("run 2", "run x")),
    ]:
        assert own(Reservation(name=name, nodes=nodes, comment=comment)) is None


def test_a_reserved_node_is_taken_out_of_the_drain_when_slurm_shows_that_it_is_reserved_and_idle() -> None:
    for states, step in [
        ("IDLE DRAIN", Step.WAIT),
        ("IDLE DRAIN MAINTENANCE", Step.BEGIN),
        ("MIXED DRAIN MAINTENANCE", Step.DELETE),
        ("DOWN DRAIN", Step.DELETE),
    ]:
        assert moved(drained(*states.split())).step is step


def test_a_drain_of_the_watcher_for_something_else_becomes_the_former_one_unless_the_test_is_well() -> None:
    for status in (None, Status.FAIL, Status.NOT_CHECKED, Status.OK):
        records = OLD if status is None else {"cpu-speed": record(status, ago=60)}
        view = drained("IDLE", "DRAIN", "MAINTENANCE", ago=5, reason="health/disks [node]: full", records=records)
        assert moved(view).step is (Step.DELETE if status is Status.OK else Step.DRAIN)
        assert moved(view, job("w-0")).step is Step.CANCEL


def test_what_others_have_done_stays_and_only_the_reservation_and_the_test_go() -> None:
    for view in (
        drained("IDLE", "DRAIN", "MAINTENANCE", ago=5, reason="fan is replaced"),
        drained("IDLE", "DRAIN", ago=5, reason="slurmstack: pod leaving"),
        drained("DOWN", ago=5, reason="fan is replaced"),
        replace(drained("IDLE", "DRAIN", ago=5, reason=""), records={"cpu-speed": record(Status.OK, ago=60)}),
        None,
    ):
        assert moved(view).step is Step.DELETE
        ending = moved(view, job("w-0"))
        assert (ending.step, ending.jobs) == (Step.DELETE, (7,))


def test_users_who_wait_do_not_end_a_re_test_and_its_node_counts_as_under_test() -> None:
    views = [node("w-0", "ALLOCATED", "MAINTENANCE"), node("w-1"), node("w-2")]
    todo = plan(views, [job("w-0")], [waits()], policy(), NOW, retested=frozenset({"w-0"}))
    assert todo.cancel == ()
    late = job("w-0", running=False, ago=60)
    assert plan(views, [late], [], policy(), NOW, retested=frozenset({"w-0"})).cancel == ()
    todo = plan(views, [], [], policy(most="2"), NOW, retested=frozenset({"w-0"}))
    assert len(started(todo)) == 1
