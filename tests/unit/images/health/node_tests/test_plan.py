"""What is started and what is ended."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from images.health.contract import Status
from images.health.node_tests.catalog import TESTS
from images.health.node_tests.plan import AGAIN_SECONDS, FAILED_SECONDS, PENDING_SECONDS, NodeView, plan
from images.health.node_tests.program import POLL_SECONDS
from images.health.node_tests.results import Record
from images.health.watch.view import STALE_SECONDS
from tests.unit.images.health.node_tests.views import NOW, job, node, policy, record, started, waits
from tests.unit.images.health.tables import table

DAY = 86_400


def starts(*views: NodeView, test: str = "cpu-speed", jobs: Any = (), now: int = NOW, **rules: Any) -> list[str]:
    """On which nodes this test is started; of a pair, on both."""
    made = started(plan(views, list(jobs), [], policy(test, **rules), now))
    assert {name for name, _ in made} <= {test}
    return [" ".join(names) for _, names in made]


def done(status: Status = Status.OK, *, ago: float, test: str = "cpu-speed") -> dict[str, Record]:
    return {test: record(status, ago=int(ago))}


@table(
    "records, rules, is_due",
    {
        "never run": ({}, {}, True),
        "run a day ago": (done(ago=DAY), {}, True),
        "slow a while ago": (done(Status.WARN, ago=AGAIN_SECONDS), {}, True),
    },
)
def test_what_is_due_is_started(records: dict[str, Record], rules: dict[str, Any], is_due: bool) -> None:
    assert ("a" in starts(node("a", records=records), node("new"), **rules)) is is_due


def test_what_has_failed_is_measured_again_before_the_watcher_forgets_it() -> None:
    assert FAILED_SECONDS + POLL_SECONDS < STALE_SECONDS


def test_a_bad_node_that_was_started_again_is_tested_at_once() -> None:
    for test, status in [("cpu-speed", Status.FAIL), ("nccl-pair", Status.FAIL), ("cpu-speed", Status.OK)]:
        views = [node(name, gpus=8, records=done(status, ago=60, test=test), started_at=NOW - 5) for name in "ab"]
        assert bool(starts(*views, test=test)) is (status is Status.FAIL)


def test_only_idle_nodes_in_a_partition_are_tested() -> None:
    for states in ("MIXED", "DOWN", "IDLE DRAIN", "IDLE PLANNED", "IDLE COMPLETING", "IDLE MAINTENANCE", "IDLE NEW"):
        assert starts(node("a", *states.split())) == [], states
    assert starts(node("a", partitions=())) == []


def test_a_job_that_waits_for_nodes_ends_tests_and_keeps_others_from_starting_and_no_other_job_does() -> None:
    views = [node("a", "ALLOCATED"), node("b")]
    for reason in ("Resources", "(Resources)", "ReqNodeNotAvail, Reserved", "QOSGrpCpuLimit", "SomethingNew", ""):
        todo = plan(views, [job("a")], [waits(reason)], policy(), NOW)
        assert [(one.job.number, one.why) for one in todo.cancel] == [(7, "a job waits")], reason
        assert started(todo) == []
    for reason in ("Dependency", "JobHeldUser", "Licenses", "QOSMaxCpuPerUserLimit", "AssocMaxJobsLimit"):
        todo = plan(views, [job("a")], [waits(reason)], policy(), NOW)
        assert (todo.cancel, started(todo)) == ((), [("cpu-speed", ("b",))]), reason


def test_a_job_ends_tests_on_nodes_that_it_could_have_and_all_where_nobody_knows_which_it_wants() -> None:
    views = [node("a", "ALLOCATED", partitions=("cpus",)), node("b", "ALLOCATED", partitions=("gpus", "all"))]
    views += [node("c", "ALLOCATED"), node("d", "ALLOCATED", partitions=("main", "other"))]
    jobs = [job("a", number=1), job("b", number=2), job("c", "d", test="nccl-pair", number=3)]
    for partitions, ended in [(("debug", "all"), [2]), (("other",), [3]), ((), [1, 2, 3])]:
        todo = plan(views, jobs, [waits(partitions=partitions)], policy(), NOW)
        assert [one.job.number for one in todo.cancel] == ended


@table(
    "views, running, ago, is_ended",
    {
        "that does not start": ([node("a")], False, PENDING_SECONDS + 1, True),
        "that runs": ([node("a", "ALLOCATED")], True, PENDING_SECONDS + 1, False),
        "on a node that is gone": ([], True, 5.0, True),
    },
)
def test_a_test_is_ended(views: list[NodeView], running: bool, ago: float, is_ended: bool) -> None:
    assert bool(plan(views, [job("a", running=running, ago=ago)], [], policy(), NOW).cancel) is is_ended


def test_a_node_has_one_test_at_a_time() -> None:
    todo = plan([node("a"), node("b")], [job("a", running=False)], [], policy("cpu-speed", "memory-bandwidth"), NOW)
    assert started(todo) == [("cpu-speed", ("b",))]


def test_only_a_part_of_the_nodes_is_tested_at_a_time() -> None:
    for most, running, new in [("10%", 0, 1), ("10%", 1, 0), ("3", 1, 2), ("0", 0, 0), ("50%", 2, 3)]:
        views = [node(f"w-{number}", *(("ALLOCATED",) if number < running else ())) for number in range(10)]
        jobs = [job(f"w-{number}", number=number) for number in range(running)]
        assert len(starts(*views, jobs=jobs, most=most)) == new


def gpus(name: str, count: int = 8, **more: Any) -> NodeView:
    return node(name, gpus=count, **more)


def suspect(other: str, ago: int = 60) -> dict[str, Record]:
    return {"nccl-pair": record(Status.WARN, ago=ago, failed_with={other: NOW - ago})}


BUSY = node("d", "ALLOCATED")
FRESH = done(ago=60, test="nccl-pair")
ALIKE = [gpus("a", pool="h100"), gpus("b", pool="h200"), gpus("c", 4, pool="h100")]
ALIKE += [gpus("d", pool="h100", partitions=("x",))]
TWO = [gpus("a", records=suspect("b", 3600)), gpus("b", records=suspect("a", 3600))]


@table(
    "views, more, pairs",
    {
        "a pair may run alone where the limit is one node": ([gpus("a"), gpus("b"), node("c")], {"most": "1"}, ["a b"]),
        "but not beside another test": ([gpus("a"), gpus("b"), BUSY], {"most": "1", "jobs": [job("d")]}, []),
        "nodes that are not alike": (ALIKE, {}, []),
        "one that is left over": ([gpus("a", records=FRESH), gpus("b"), gpus("c", records=FRESH)], {}, ["b a"]),
        "two that failed, without a third": (TWO, {}, []),
    },
)
def test_pairs(views: list[NodeView], more: dict[str, Any], pairs: list[str]) -> None:
    assert starts(*views, test="nccl-pair", **more) == pairs


def test_a_failed_pair_is_split_before_anything_else() -> None:
    views = [gpus("a", records=suspect("b")), gpus("b", records=suspect("a"))]
    views += [gpus(name, records=done(ago=3600, test="nccl-pair")) for name in ("c", "d")]
    todo = plan(views, [], [], policy("cpu-speed", "nccl-pair"), NOW)
    assert started(todo) == [("nccl-pair", ("a", "c")), ("nccl-pair", ("b", "d"))]


STATES = st.lists(
    st.sampled_from(["IDLE", "DRAIN", "ALLOCATED", "PLANNED", "CLOUD", "DYNAMIC_NORM"]), min_size=1, max_size=3
)
NAMES = [f"w-{number}" for number in range(7)]


@st.composite
def clusters(draw: st.DrawFn) -> list[NodeView]:
    views = []
    for name in draw(st.lists(st.sampled_from(NAMES), unique=True)):
        records = {
            test: record(
                draw(st.sampled_from(Status)),
                ago=draw(st.integers(0, 10 * DAY)),
                failed_with=draw(st.dictionaries(st.sampled_from(NAMES), st.just(NOW - 5), max_size=2)),
            )
            for test in draw(st.lists(st.sampled_from(sorted(TESTS)), unique=True))
        }
        partitions = draw(st.sampled_from([("main",), ("main", "gpus"), ("gpus",), ()]))
        views.append(
            node(name, *draw(STATES), records=records, gpus=draw(st.sampled_from([0, 8])), partitions=partitions)
        )
    return views


@settings(max_examples=30, deadline=None)
@given(data=st.data(), views=clusters())
def test_whatever_the_cluster_users_come_first(data: st.DataObject, views: list[NodeView]) -> None:
    jobs = [
        job(name, number=number)
        for number, name in enumerate(data.draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=3)))
    ]
    reasons = data.draw(
        st.lists(st.sampled_from([("Resources", "gpus"), ("Dependency", "main"), ("Priority", "")]), max_size=2)
    )
    waiting = [waits(reason, tuple(partition.split())) for reason, partition in reasons]
    limit = data.draw(st.integers(0, 7))
    todo = plan(views, jobs, waiting, policy(*TESTS, most=str(limit)), NOW)
    names = [name for _, pair in started(todo) for name in pair]
    assert len(set(names)) == len(names)
    assert not set(names) & {name for one in jobs for name in one.nodes}
    by_name = {view.name: view for view in views}
    assert all(by_name[name].is_idle for name in names)
    wanted = {partition for _, partition in reasons if partition == "gpus"}
    assert all(wanted.isdisjoint(by_name[name].partitions) for name in names)
    if ("Priority", "") in reasons:
        assert names == []
        assert len(todo.cancel) == len(jobs)
    assert len(names) + len(jobs) <= max(limit, len(jobs), 2 if limit else 0)
    for wish in todo.submit:
        assert len(wish.nodes) == wish.test.nodes
        assert all(wish.partition in view.partitions and view.gpus >= wish.test.gpus for view in wish.nodes)
