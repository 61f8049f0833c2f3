"""What is started and what is ended."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from images.health.contract import Status
from images.health.node_tests.catalog import TESTS
from images.health.node_tests.plan import AGAIN_SECONDS, FAILED_SECONDS, PENDING_SECONDS, NodeView, plan
from images.health.node_tests.program import POLL_SECONDS
from images.health.watch.decide import STALE_SECONDS
from tests.unit.images.health.node_tests.views import NOW, job, node, policy, record, started, waits

DAY = 86_400


def test_a_new_node_is_tested_and_one_that_was_is_left_alone_until_it_is_due() -> None:
    new, fresh, due = (
        node("new"),
        node("fresh", records={"cpu-speed": record(ago=DAY - 1)}),
        node("due", records={"cpu-speed": record(ago=DAY)}),
    )
    assert started(plan([new, fresh, due], [], [], policy(), NOW)) == [("cpu-speed", ("new",)), ("cpu-speed", ("due",))]


@pytest.mark.parametrize(("status", "soon"), [(Status.WARN, AGAIN_SECONDS), (Status.FAIL, FAILED_SECONDS)])
def test_what_was_bad_is_measured_again_soon(status: Status, soon: float) -> None:
    assert started(plan([node("a", records={"cpu-speed": record(status, ago=int(soon))})], [], [], policy(), NOW))
    assert not started(
        plan([node("a", records={"cpu-speed": record(status, ago=int(soon) - 1)})], [], [], policy(), NOW)
    )


def test_what_has_failed_is_measured_again_before_the_watcher_forgets_it() -> None:
    assert FAILED_SECONDS + POLL_SECONDS < STALE_SECONDS


def test_a_bad_node_that_was_started_again_is_tested_at_once() -> None:
    for test, status in (("cpu-speed", Status.FAIL), ("nccl-pair", Status.FAIL), ("cpu-speed", Status.OK)):
        views = [node(name, gpus=8, records={test: record(status, ago=60)}, started_at=NOW - 5) for name in "ab"]
        assert bool(started(plan(views, [], [], policy(test), NOW))) is (status is Status.FAIL)


def test_what_was_not_checked_waits_for_its_turn() -> None:
    view = node("a", records={"cpu-speed": record(Status.NOT_CHECKED, ago=DAY - 1)})
    assert not started(plan([view], [], [], policy(), NOW))
    assert started(plan([view], [], [], policy(intervals={"cpu-speed": 3600.0}), NOW))


@pytest.mark.parametrize(
    "states",
    [
        ("ALLOCATED",),
        ("MIXED",),
        ("IDLE", "DRAIN"),
        ("DOWN",),
        ("IDLE", "RESERVED"),
        ("IDLE", "PLANNED"),
        ("IDLE", "COMPLETING"),
        ("IDLE", "NOT_RESPONDING"),
        ("IDLE", "CLOUD", "POWERED_DOWN"),
        ("IDLE", "POWERING_UP"),
        ("IDLE", "MAINTENANCE"),
        ("IDLE", "SOMETHING_NEW"),
        ("DYNAMIC_NORM",),
    ],
    ids="+".join,
)
def test_only_idle_nodes_are_tested(states: tuple[str, ...]) -> None:
    assert started(plan([node("a", *states)], [], [], policy(), NOW)) == []


def test_a_node_without_a_partition_cannot_be_tested() -> None:
    assert started(plan([node("a", partitions=())], [], [], policy(), NOW)) == []


@pytest.mark.parametrize(
    "reason",
    [
        "Resources",
        "Priority",
        "None",
        "(Resources)",
        "ReqNodeNotAvail, Reserved",
        "QOSGrpCpuLimit",
        "AssocGrpGRES",
        "SomethingNew",
        "",
    ],
)
def test_a_job_that_waits_for_nodes_ends_tests_and_keeps_others_from_starting(reason: str) -> None:
    todo = plan([node("a", "ALLOCATED"), node("b")], [job("a")], [waits(reason)], policy(), NOW)
    assert [(one.job.number, one.why) for one in todo.cancel] == [(7, "a job waits")]
    assert started(todo) == []


@pytest.mark.parametrize(
    "reason",
    [
        "Dependency",
        "BeginTime",
        "JobHeldUser",
        "JobHeldAdmin",
        "Licenses",
        "QOSMaxCpuPerUserLimit",
        "AssocMaxJobsLimit",
        "PartitionDown",
        "JobHoldMaxRequeue",
        "MaxJobsPerAccount",
        "DependencyNeverSatisfied",
        "PartitionTimeLimit",
    ],
)
def test_a_job_that_waits_for_something_else_does_not(reason: str) -> None:
    todo = plan([node("a", "ALLOCATED"), node("b")], [job("a")], [waits(reason)], policy(), NOW)
    assert (todo.cancel, started(todo)) == ((), [("cpu-speed", ("b",))])


def test_a_job_only_ends_tests_on_nodes_that_it_could_have() -> None:
    cpus, gpus = node("a", "ALLOCATED", partitions=("cpus",)), node("b", "ALLOCATED", partitions=("gpus", "all"))
    jobs = [job("a", number=1), job("b", number=2)]
    todo = plan([cpus, gpus], jobs, [waits(partitions=("debug", "all"))], policy(), NOW)
    assert [one.job.number for one in todo.cancel] == [2]
    todo = plan([cpus, gpus], jobs, [waits(partitions=())], policy(), NOW)
    assert [one.job.number for one in todo.cancel] == [1, 2], "nobody knows which nodes it wants"


def test_a_pair_ends_for_either_of_its_nodes() -> None:
    views = [node("a", "ALLOCATED"), node("b", "ALLOCATED", partitions=("main", "other"))]
    assert plan(views, [job("a", "b", test="nccl-pair")], [waits(partitions=("other",))], policy(), NOW).cancel


def test_a_test_that_does_not_start_at_once_is_ended() -> None:
    late, early = PENDING_SECONDS + 1, PENDING_SECONDS - 1
    assert plan([node("a")], [job("a", running=False, ago=late)], [], policy(), NOW).cancel
    assert not plan([node("a")], [job("a", running=False, ago=early)], [], policy(), NOW).cancel
    assert not plan([node("a", "ALLOCATED")], [job("a", ago=late)], [], policy(), NOW).cancel


def test_a_test_on_a_node_that_is_gone_is_ended() -> None:
    assert plan([], [job("a")], [], policy(), NOW).cancel


def test_a_node_has_one_test_at_a_time() -> None:
    todo = plan([node("a"), node("b")], [job("a", running=False)], [], policy("cpu-speed", "memory-bandwidth"), NOW)
    assert started(todo) == [("cpu-speed", ("b",))]


@pytest.mark.parametrize(
    ("most", "running", "new"), [("10%", 0, 1), ("10%", 1, 0), ("3", 1, 2), ("0", 0, 0), ("0%", 0, 0), ("50%", 2, 3)]
)
def test_only_a_part_of_the_nodes_is_tested_at_a_time(most: str, running: int, new: int) -> None:
    views = [node(f"w-{number}", *(("ALLOCATED",) if number < running else ())) for number in range(10)]
    jobs = [job(f"w-{number}", number=number) for number in range(running)]
    assert len(started(plan(views, jobs, [], policy(most=most), NOW))) == new


def test_a_pair_may_run_alone_where_the_limit_is_one_node() -> None:
    views = [node("a", gpus=8), node("b", gpus=8), node("c")]
    assert started(plan(views, [], [], policy("nccl-pair", most="1"), NOW)) == [("nccl-pair", ("a", "b"))]
    assert started(plan([*views, node("d", "ALLOCATED")], [job("d")], [], policy("nccl-pair", most="1"), NOW)) == []
    assert started(plan(views, [], [], policy("nccl-pair", most="0"), NOW)) == []


def test_gpu_tests_run_where_enough_gpus_are() -> None:
    views = [node("none"), node("one", gpus=1), node("two", gpus=2)]
    assert started(plan(views, [], [], policy("nccl-node"), NOW)) == [("nccl-node", ("two",))]
    assert len(started(plan(views, [], [], policy("dcgm-r1"), NOW))) == 2


def test_pairs_are_made_of_nodes_that_are_alike() -> None:
    views = [
        node("a", gpus=8, pool="h100"),
        node("b", gpus=8, pool="h200"),
        node("c", gpus=4, pool="h100"),
        node("d", gpus=8, pool="h100", partitions=("x",)),
    ]
    assert started(plan(views, [], [], policy("nccl-pair"), NOW)) == []
    assert started(plan([*views, node("e", gpus=8, pool="h100")], [], [], policy("nccl-pair"), NOW)) == [
        ("nccl-pair", ("a", "e"))
    ]


def test_a_node_that_is_left_over_is_paired_with_one_that_is_not_due() -> None:
    known = {"nccl-pair": record(ago=60)}
    views = [node("a", gpus=8, records=known), node("b", gpus=8), node("c", gpus=8, records=known)]
    assert started(plan(views, [], [], policy("nccl-pair"), NOW)) == [("nccl-pair", ("b", "a"))]
    assert started(plan([views[0], views[2]], [], [], policy("nccl-pair"), NOW)) == []


def test_a_failed_pair_is_split_before_anything_else() -> None:
    bad = {
        name: {"nccl-pair": record(Status.WARN, ago=60, failed_with={other: NOW - 60})}
        for name, other in (("a", "b"), ("b", "a"))
    }
    good = {"nccl-pair": record(ago=3600)}
    views = [node("a", gpus=8, records=bad["a"]), node("b", gpus=8, records=bad["b"])]
    views += [node(name, gpus=8, records=good) for name in ("c", "d")]
    todo = plan(views, [], [], policy("cpu-speed", "nccl-pair"), NOW)
    assert started(todo) == [("nccl-pair", ("a", "c")), ("nccl-pair", ("b", "d"))]


def test_two_nodes_that_failed_with_no_third_run_again_only_when_they_are_due() -> None:
    bad = {
        name: {"nccl-pair": record(Status.WARN, ago=3600, failed_with={other: NOW - 3600})}
        for name, other in (("a", "b"), ("b", "a"))
    }
    views = [node(name, gpus=8, records=bad[name]) for name in ("a", "b")]
    assert started(plan(views, [], [], policy("nccl-pair"), NOW)) == []
    assert started(plan(views, [], [], policy("nccl-pair"), NOW + DAY)) == [("nccl-pair", ("a", "b"))]


def test_a_partner_that_is_another_machine_now_is_forgotten() -> None:
    suspect = {"nccl-pair": record(Status.WARN, ago=60, failed_with={"b": NOW - 60})}
    replaced = node("b", gpus=8, records={"nccl-pair": record(ago=5)}, started_at=NOW - 30)
    assert started(plan([node("a", gpus=8, records=suspect), replaced], [], [], policy("nccl-pair"), NOW)) == []


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
