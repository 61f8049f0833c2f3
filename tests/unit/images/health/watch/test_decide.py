"""Who is drained, and who is resumed: never wrong in the dangerous direction."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from images.common.health.contract import Result
from images.common.health.report import (
    SKEW_SECONDS,
    STALE_SECONDS,
    WELL_STALE_SECONDS,
    Finding,
    parse,
)
from images.health.watch.decide import AGAIN_SECONDS, HOLD_SECONDS, Flapping, Kind, NodeView, decide
from tests.unit.images.health.tables import table
from tests.unit.images.health.watch.views import (
    NOW,
    OK,
    OURS,
    SPARE,
    UNKNOWN,
    WARN,
    count,
    deciding,
    done,
    drained,
    failed,
    faults,
    found,
    policy,
    view,
)

FULL, NO_ANSWER, XID = failed("/jail 97 % used"), failed("no answer"), failed("Xid 79", "hardware")
LOST = Finding(result=failed(), at=NOW, lost=True)
REPORTS = policy(report_only=frozenset({"disks"}))
AHEAD = -SKEW_SECONDS - 60
LIFTED = "resume w-0: lifted: health/disks"
BROKEN = "drain w-0: health/disks [node]: broken"


@table(
    "node, action",
    {
        "a failure": (view(disks=FULL), f"drain w-0: {OURS}"),
        "a failure that is almost too old": (view(disks=found(failed(), ago=STALE_SECONDS - 1)), BROKEN),
        "a failure of a fast clock": (view(disks=found(failed(), ago=AHEAD)), BROKEN),
        "the gravest of several failures": (
            view(disks=FULL, memory=failed(fault="user"), gpu_xid=XID),
            "drain w-0: health/gpu-xid [hardware]: Xid 79",
        ),
        "well again": (drained(disks=OK), LIFTED),
        "a warning is nothing to be drained for": (drained(disks=WARN), LIFTED),
        "well just after the drain": (drained(disks=found(OK, ago=54.0)), LIFTED),
        "well again with another fault": (drained(disks=OK, dns=NO_ANSWER), "reason w-0: health/dns [node]: no answer"),
    },
)
def test_a_node_is_drained_or_resumed(node: NodeView, action: str) -> None:
    assert done(deciding(node, view("w-1", disks=OK))) == [action]


@table(
    "node",
    {
        "not checked": view(disks=UNKNOWN),
        "drained without a report": drained(),
        "an old failure": view(disks=found(failed(), ago=STALE_SECONDS + 1)),
        "well, with the reason of a drain that is over": view("w-0", "MIXED", reason=OURS, disks=OK),
        "a state of fail is an administrator's even with our reason": view(
            "w-0", "IDLE", "FAIL", reason=OURS, disks=OK
        ),
        "drained, and not checked": drained(disks=UNKNOWN),
        "drained for another check than the one that is well": drained(reason="health/disks-2: x", disks=OK),
        "looked at too soon after the drain": drained(disks=found(OK, ago=55.1)),
        "a report of a fast clock": drained(disks=found(OK, ago=AHEAD)),
        "an old report": drained(ago=9000, disks=found(OK, ago=WELL_STALE_SECONDS + 1)),
        "another fault besides": drained(disks=failed(), gpu_xid=XID),
    },
)
def test_a_node_is_left_as_it_is(node: NodeView) -> None:
    assert done(deciding(node)) == []


@table(
    "node, actions",
    {
        "its failure drains nothing": (view(disks=failed()), []),
        "another failure does": (view(disks=FULL, dns=NO_ANSWER), ["drain w-0: health/dns [node]: no answer"]),
        "its drain is lifted": (drained(disks=FULL), ["resume w-0: lifted: health/disks"]),
        "also where nobody looks any more": (drained(), ["resume w-0: lifted: health/disks"]),
        "unless there is another fault": (drained(dns=NO_ANSWER), ["reason w-0: health/dns [node]: no answer"]),
    },
)
def test_a_check_that_is_only_reported(node: NodeView, actions: list[str]) -> None:
    assert done(deciding(node, by=REPORTS)) == actions


def test_a_node_that_slurm_does_not_use_is_left_alone() -> None:
    for state in ("POWERED_DOWN", "POWERING_UP", "FUTURE", "REBOOT_ISSUED", "INVALID_REG"):
        assert not deciding(view("w-0", "IDLE", state, disks=failed(), kubernetes=LOST)).actions
        assert not deciding(drained("IDLE", state, kubernetes=LOST)).actions


def test_what_somebody_else_closed_is_never_touched() -> None:
    for reason in ("bad fan", "", "slurmstack: pod leaving", "health/", "x health/disks", "health/disks is no matter"):
        for states in (("IDLE", "DRAIN"), ("ALLOCATED", "DRAIN"), ("DOWN",), ("IDLE", "FAIL")):
            for result in (OK, failed(fault="hardware")):
                node = view("w-0", *states, reason=reason, disks=result)
                assert not deciding(node).actions, node
                assert not deciding(replace(node, findings={**node.findings, "kubernetes": LOST})).actions, node


def test_a_drain_that_is_not_settled_stays() -> None:
    assert not decide([drained(disks=OK), *SPARE], policy(), NOW, frozenset({"w-0"})).actions


# ---------------------------------------------------------------- the limit

DRAINED = [replace(drained(disks=failed()), name=f"d-{number}") for number in range(2)]
HELD = [view(f"r-{n}", "IDLE", "MAINTENANCE") for n in range(2)]
THEIRS = [view(f"d-{number}", "IDLE", "DRAIN", reason="bad fan") for number in range(5)]
ASLEEP = [view(f"s-{number}", "IDLE", "POWERED_DOWN") for number in range(90)]


@table(
    "nodes, limit, actions",
    {
        "ten faults at once": (faults(10) + SPARE, "3", 3),
        "nodes that are drained already count": ([*DRAINED, *faults(5), *SPARE], "3", 1),
        "and may be all that the limit allows": ([*DRAINED, *faults(5), *SPARE], "2", 0),
        "an administrator's drains do not count": ([*THEIRS, *faults(5), *SPARE], "3", 3),
        "the last node that takes jobs stays": (faults(4), "100", 3),
        "a part is one of the nodes that are there": ([*faults(10), *ASLEEP], "10%", 1),
        "those that are kept for tests take no jobs": ([*HELD, *faults(1)], "100", 0),
        "one in maintenance that fails is drained": ([view("m", "MAINTENANCE", disks=failed()), *SPARE], "1", 1),
    },
)
def test_no_more_than_the_limit_are_drained(nodes: list[NodeView], limit: str, actions: int) -> None:
    assert count(nodes, limit) == actions


IN_A = [replace(view(f"a-{number}"), features=frozenset("a")) for number in range(20)]
IN_B = [replace(view(f"b-{number}"), features=frozenset("b")) for number in range(20)]


def failing(nodes: list[NodeView], **findings: Result) -> list[NodeView]:
    """The same nodes, each with another check that fails; or all with these findings."""
    return [
        replace(node, findings={check.replace("_", "-"): found(result) for check, result in one.items()})
        for number, node in enumerate(nodes)
        for one in [findings or {f"check_{number}": failed()}]
    ]


@table(
    "nodes, limit, drained_nodes",
    {
        "a part is one of each pool": ([*failing(IN_A), *IN_B], "10%", ["a-0", "a-1"]),
        "nodes that are away are none of it": ([*failing(IN_A[:9]), *IN_B, *ASLEEP], "10%", ["a-0"]),
    },
)
def test_a_limit_holds_for_each_pool_as_well(nodes: list[NodeView], limit: str, drained_nodes: list[str]) -> None:
    assert sorted(action.node.name for action in decide(nodes, policy(limit), NOW).actions) == drained_nodes


@table(
    "nodes, drained_nodes, alarms",
    {
        "a part of a pool that is not large": (
            [*failing(IN_A[:6], disks=FULL), *failing(IN_A[6:], disks=OK)],
            [node.name for node in IN_A[:6]],
            [],
        ),
        "a third of a pool": (
            [*failing(IN_A[:7], disks=FULL), *failing(IN_A[7:], disks=OK), *failing(IN_B, disks=OK)],
            [],
            ["disks fails on 7 of 20 nodes of pool a at once: /jail 97 % used"],
        ),
        "of those that have looked": (
            [*failing(IN_A[:3], disks=FULL), *failing(IN_A[3:8], disks=OK), *failing(IN_A[8:], disks=UNKNOWN)],
            [],
            ["disks fails on 3 of 8 nodes of pool a at once: /jail 97 % used"],
        ),
        "two nodes are no sign of anything": (failing(IN_A[:2], disks=FULL), ["a-0"], []),
        "those that are only reported": (failing(IN_A, dns=FULL), [], []),
    },
)
def test_nothing_is_drained_for_what_a_large_part_of_a_pool_has_at_once(
    nodes: list[NodeView], drained_nodes: list[str], alarms: list[str]
) -> None:
    decision = decide(nodes, policy(report_only=frozenset({"dns"})), NOW)
    assert sorted(action.node.name for action in decision.actions) == sorted(drained_nodes)
    assert [str(fault) for fault in decision.common] == alarms


def test_a_node_that_is_drained_for_what_many_have_by_now_stays_so_until_it_is_well() -> None:
    many = [view(f"x-{n}", disks=FULL) for n in range(5)]
    assert done(decide([drained(disks=FULL), *many], policy(), NOW)) == []
    assert done(decide([drained(disks=OK), *many], policy(), NOW)) == [LIFTED]


def test_what_the_limit_holds_back_is_known_and_a_fault_of_the_machine_goes_first() -> None:
    decision = decide([*faults(10), view("z-9", gpu_xid=XID), *SPARE], policy("3"), NOW)
    assert [action.node.name for action in decision.actions] == ["w-00", "w-01", "z-9"]
    assert len(decision.held) == 8


_RESULTS = st.sampled_from([OK, WARN, UNKNOWN, failed(), failed(fault="hardware"), failed(fault=None)])
_STATES = st.sampled_from([("IDLE",), ("MIXED",), ("IDLE", "DRAIN"), ("DOWN",), ("DOWN", "DRAIN"), ("IDLE", "FAIL")])
_REASONS = st.sampled_from(["", "bad fan", OURS, "health/dns [node]: x", "health/kubernetes [node]: gone"])


@settings(max_examples=30)
@given(st.lists(st.tuples(_STATES, _REASONS, _RESULTS, _RESULTS, st.booleans()), max_size=20), st.integers(0, 6))
def test_whatever_comes_the_limit_holds_and_strangers_are_left_alone(
    drawn: list[tuple[tuple[str, ...], str, Result, Result, bool]], limit: int
) -> None:
    nodes = [
        view(f"w-{number:02}", *states, reason=reason, disks=disks, kubernetes=Finding(result=kube, at=NOW, lost=lost))
        for number, (states, reason, disks, kube, lost) in enumerate(drawn)
    ]
    decision = decide(nodes, policy(str(limit)), NOW)
    ours = sum(node.own is not None for node in nodes)
    new = [action for action in decision.actions if action.kind in {Kind.DRAIN, Kind.DOWN} and action.node.own is None]
    assert ours + len(new) <= max(limit, ours)
    usable = sum(node.takes_jobs for node in nodes)
    closed = sum(action.node.takes_jobs for action in decision.actions if action.kind is Kind.DRAIN)
    assert usable == 0 or closed < usable
    for action in decision.actions:
        assert action.node.own is not None or not action.node.is_closed
        assert action.kind is not Kind.RESUME or parse(action.node.reason) is not None
    assert len({action.node.name for action in decision.actions}) == len(decision.actions)


def drained_ago(ago: float, result: Result = OK, reason: str = OURS) -> NodeView:
    return drained(reason=reason, ago=ago, disks=result, kubernetes=result)


@table(
    "now, lifted_ago, held",
    {
        "the first drain is lifted at once": (drained_ago(30), None, False),
        "the next one stands for five minutes": (drained_ago(HOLD_SECONDS - 1), HOLD_SECONDS + 60, True),
        "and no longer": (drained_ago(HOLD_SECONDS), HOLD_SECONDS + 60, False),
        "an hour later it is the first again": (drained_ago(30), AGAIN_SECONDS + 30, False),
        "another check has not failed before": (drained_ago(30, reason="health/dns [node]: x"), 60, False),
        "people cordon as often as they like": (drained_ago(30, reason="health/kubernetes [node]: x"), 60, False),
        "a node that is not drained": (view("w-0", disks=OK), 60, False),
        "a warning right after slurmd has started": (replace(drained_ago(30, WARN), started_at=NOW - 200), None, True),
        "a warning later": (replace(drained_ago(30, WARN), started_at=NOW - HOLD_SECONDS), None, False),
        "a failure lifts nothing anyway": (drained_ago(30, failed()), None, False),
    },
)
def test_a_drain_stands_where_another_one_was_lifted_of_late(
    now: NodeView, lifted_ago: float | None, held: bool
) -> None:
    flapping = Flapping()
    for reason in (OURS, "health/kubernetes [node]: x") if lifted_ago is not None else ():
        flapping.lifted(drained(reason=reason), NOW - (lifted_ago or 0.0))
    assert flapping.holds(now, NOW) is held
