"""Who is drained, and who is resumed: never wrong in the dangerous direction."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from images.common.health.contract import Result
from images.common.health.report import SKEW_SECONDS, STALE_SECONDS, WELL_STALE_SECONDS, Finding, parse
from images.health.watch.decide import Kind, NodeView, Policy, decide
from tests.unit.images.health.places import table
from tests.unit.images.health.watch.views import (
    NOW,
    OK,
    OURS,
    SPARE,
    UNKNOWN,
    WARN,
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
        "a failure of a fast clock": (view(disks=found(failed(), ago=AHEAD)), BROKEN),
        "the gravest of several failures": (
            view(disks=FULL, memory=failed(fault="user"), gpu_xid=XID),
            "drain w-0: health/gpu-xid [hardware]: Xid 79",
        ),
        "well again": (drained(disks=OK), LIFTED),
        "a warning is nothing to be drained for": (drained(disks=WARN), LIFTED),
    },
)
def test_a_node_is_drained_or_resumed(node: NodeView, action: str) -> None:
    assert done(deciding(node, view("w-1", disks=OK))) == [action]


@table(
    "node",
    {
        "not checked": view(disks=UNKNOWN),
        "an old failure": view(disks=found(failed(), ago=STALE_SECONDS + 1)),
        "drained, and not checked": drained(disks=UNKNOWN),
        "drained for another check than the one that is well": drained(reason="health/disks-2: x", disks=OK),
        "looked at too soon after the drain": drained(disks=found(OK, ago=395.1)),
        "well again, and drained just now": drained(ago=119, disks=OK),
        "a report of a fast clock": drained(disks=found(OK, ago=AHEAD)),
        "an old report": drained(ago=9000, disks=found(OK, ago=WELL_STALE_SECONDS + 1)),
        "another fault besides": drained(disks=failed(), gpu_xid=XID),
        "well again, and another fault": drained(disks=OK, dns=NO_ANSWER),
    },
)
def test_a_node_is_left_as_it_is(node: NodeView) -> None:
    assert done(deciding(node)) == []


@table(
    "node, actions",
    {
        "its failure drains nothing": (view(disks=failed()), []),
        "its drain is lifted": (drained(disks=FULL), [LIFTED]),
        "also where nobody looks any more": (drained(), [LIFTED]),
    },
)
def test_a_check_that_is_only_reported(node: NodeView, actions: list[str]) -> None:
    assert done(deciding(node, by=REPORTS)) == actions


def test_a_node_that_slurm_does_not_use_is_left_alone() -> None:
    for state in ("POWERED_DOWN", "POWERING_UP", "REBOOT_ISSUED"):
        assert not deciding(view("w-0", "IDLE", state, disks=failed(), kubernetes=LOST)).actions
        assert not deciding(drained("IDLE", state, kubernetes=LOST)).actions


# ---------------------------------------------------------------- machines


def kube(message: str, *, declared: bool = False, lost: bool = False) -> Finding:
    return Finding(result=failed(message), at=NOW, declared=declared, lost=lost)


CORDONED, GONE = kube("machine m-0 is cordoned", declared=True), kube("machine m-0 is gone", lost=True)
CORDON_REASON = "health/kubernetes [node]: machine m-0 is cordoned"
GONE_REASON = "health/kubernetes [node]: machine m-0 is gone"
UNWANTED = Finding(result=failed("maintenance"), at=NOW, declared=True, unwanted_since=NOW - 60)
DOWN = [f"down w-0: {GONE_REASON}"]


@table(
    "node, actions",
    {
        "a lost machine is set down": (view(kubernetes=GONE), DOWN),
        "also if it was drained for a check": (drained("ALLOCATED", disks=failed(), kubernetes=GONE), DOWN),
        "and once only": (drained("DOWN", reason=GONE_REASON, kubernetes=GONE), []),
        # Else it would be resumed as soon as there is another machine, before that is checked for what the reason says.
        "a drained one without jobs keeps its reason": (drained(disks=failed(), kubernetes=GONE), []),
        "but not while a job ends": (drained("IDLE", "COMPLETING", kubernetes=GONE), DOWN),
        "an uncordoned machine is resumed": (
            drained(reason=CORDON_REASON, kubernetes=OK),
            ["resume w-0: lifted: health/kubernetes"],
        ),
        "a drained node whose machine is cordoned": (drained("MIXED", disks=failed(), kubernetes=CORDONED), []),
    },
)
def test_what_is_known_of_a_machine_counts(node: NodeView, actions: list[str]) -> None:
    assert done(deciding(node)) == actions


FREES, KEEPS = policy(requeue_after=600, frees_broken=True), policy(requeue_after=600)


def cordoned(ago: float = 600) -> NodeView:
    return drained("MIXED", reason=CORDON_REASON, ago=ago, kubernetes=CORDONED)


def since(ago: float, node: NodeView) -> NodeView:
    """The node, whose machine and whose GPUs the watcher has seen to be wrong for so long."""
    return replace(node, began={("kubernetes", "node"): NOW - ago, ("gpu-xid", "hardware"): NOW - ago})


LONG_FULL = drained("MIXED", ago=7200, disks=failed(), kubernetes=CORDONED)
LONG_BROKEN = drained("MIXED", ago=7200, disks=failed(), gpu_xid=XID)


def broken() -> NodeView:
    return drained("MIXED", reason="health/gpu-xid [hardware]: Xid 79", ago=600, gpu_xid=XID)


def kept() -> NodeView:
    return drained("MIXED", reason="health/gpu-free [hardware]: 7 of 8", ago=600, gpu_free=failed("7 of 8", "hardware"))


@table(
    "node, by, kinds",
    {
        "before the deadline": (cordoned(ago=599), KEEPS, []),
        "at the deadline": (cordoned(), KEEPS, ["requeue"]),
        "a site without a deadline": (cordoned(ago=10**6), policy(), []),
        "it is for machines and not for failed checks": (drained("MIXED", ago=9999, disks=failed()), FREES, []),
        "broken hardware, where machines are released": (broken(), FREES, ["requeue"]),
        "what was found before the jobs, and is only repeated": (kept(), FREES, []),
        "a cordon of a node that is drained for long": (since(599, LONG_FULL), KEEPS, []),
        "and at its own deadline": (since(600, LONG_FULL), KEEPS, ["requeue"]),
        "hardware that breaks on a node that is drained for long": (since(599, LONG_BROKEN), FREES, []),
        "and at the deadline of that": (since(600, LONG_BROKEN), FREES, ["requeue"]),
        "nobody knows since when": (LONG_FULL, KEEPS, []),
    },
)
def test_jobs_are_requeued_after_the_deadline(node: NodeView, by: Policy, kinds: list[str]) -> None:
    assert [action.kind.value for action in deciding(node, by=by).actions] == kinds


# ---------------------------------------------------------------- the limit

BAD = [replace(drained(disks=failed()), name=f"d-{number}") for number in range(2)]
THEIRS = [view(f"d-{number}", "IDLE", "DRAIN", reason="bad fan") for number in range(5)]
ASLEEP = [view(f"s-{number}", "IDLE", "POWERED_DOWN") for number in range(90)]
IN_A = [replace(view(f"a-{number}"), features=frozenset("a")) for number in range(20)]
IN_B = [replace(view(f"b-{number}"), features=frozenset("b")) for number in range(20)]


def failing(nodes: list[NodeView], **findings: Result) -> list[NodeView]:
    """The same nodes, each with another check that fails; or all with these findings."""
    return [
        replace(node, findings={check.replace("_", "-"): found(result) for check, result in one.items()})
        for number, node in enumerate(nodes)
        for one in [findings or {f"check_{number}": failed()}]
    ]


def ten(finding: Finding) -> list[NodeView]:
    return [view(f"w-{number}", kubernetes=finding) for number in range(10)]


LEFT = [replace(drained(reason=CORDON_REASON, kubernetes=CORDONED), name=f"c-{number}") for number in range(10)]


@table(
    "nodes, limit, actions",
    {
        "ten faults at once": (faults(10) + SPARE, "3", 3),
        "nodes that are drained already count": ([*BAD, *faults(5), *SPARE], "3", 1),
        "an administrator's drains do not count": ([*THEIRS, *faults(5), *SPARE], "3", 3),
        "the last node that takes jobs stays": (faults(4), "100", 3),
        "a part is one of the nodes that are there": ([*faults(10), *ASLEEP], "10%", 1),
        "a part is one of each pool": ([*failing(IN_A), *IN_B], "10%", 2),
        "cordons are followed without regard to the limit": ([*ten(CORDONED), *SPARE], "1", 10),
        "and leave room for faults": ([*LEFT, *faults(3), *SPARE], "1", 1),
        "a condition on all machines at once is held back": (ten(UNWANTED), "2", 2),
        "machines that are not ready all at once are left alone": (ten(kube("not ready")), "100%", 0),
        "losing all machines ends the jobs of few": (ten(GONE), "2", 2),
    },
)
def test_no_more_than_the_limit_are_drained(nodes: list[NodeView], limit: str, actions: int) -> None:
    assert len(decide(nodes, policy(limit), NOW).actions) == actions


def test_what_the_limit_holds_back_is_known_and_a_fault_of_the_machine_goes_first() -> None:
    decision = decide([*faults(10), view("z-9", gpu_xid=XID), *SPARE], policy("3"), NOW)
    assert [action.node.name for action in decision.actions] == ["w-00", "w-01", "z-9"]
    assert len(decision.held) == 8


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
    },
)
def test_nothing_is_drained_for_what_a_large_part_of_a_pool_has_at_once(
    nodes: list[NodeView], drained_nodes: list[str], alarms: list[str]
) -> None:
    decision = decide(nodes, policy(report_only=frozenset({"dns"})), NOW)
    assert sorted(action.node.name for action in decision.actions) == sorted(drained_nodes)
    assert list(decision.common.values()) == alarms


def test_a_node_that_is_drained_for_what_many_have_by_now_stays_so_until_it_is_well() -> None:
    many = [view(f"x-{n}", disks=FULL) for n in range(5)]
    assert done(decide([drained(disks=FULL), *many], policy(), NOW)) == []
    assert done(decide([drained(disks=OK), *many], policy(), NOW)) == [LIFTED]


def test_what_is_drained_for_long_or_set_down_is_none_of_many() -> None:
    for old, drains in (
        ([replace(drained(ago=600, disks=FULL), name=f"x-{n}") for n in range(2)], ["w-1"]),
        ([replace(drained(ago=599, disks=FULL), name=f"x-{n}") for n in range(2)], []),
    ):
        decision = decide([*old, view("w-1", disks=FULL), *SPARE], policy(), NOW)
        assert [action.node.name for action in decision.actions] == drains
    away = failed("machine is gone")
    down = [view(f"x-{n}", "DOWN", "DRAIN", reason=GONE_REASON, kubernetes=away) for n in range(2)]
    decision = decide([*down, view("w-1", kubernetes=failed("not ready")), *SPARE], policy(), NOW)
    assert [action.node.name for action in decision.actions] == ["w-1"]


_RESULTS = st.sampled_from([OK, WARN, UNKNOWN, failed(), failed(fault="hardware"), failed(fault=None)])
_STATES = st.sampled_from([("IDLE",), ("MIXED",), ("IDLE", "DRAIN"), ("DOWN",), ("DOWN", "DRAIN"), ("IDLE", "FAIL")])
_REASONS = st.sampled_from(["", "bad fan", OURS, "health/dns [node]: x", "health/kubernetes [node]: gone"])


@settings(max_examples=100)
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


def test_after_slurmd_has_started_a_warning_lifts_no_drain_for_a_while() -> None:
    for ago, lifts in ((119, []), (120, [LIFTED])):
        assert done(deciding(replace(drained(disks=WARN), started_at=NOW - ago))) == lifts
