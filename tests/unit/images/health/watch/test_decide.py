"""Who is drained, and who is resumed: never wrong in the dangerous direction."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from images.health.contract import Result
from images.health.watch.decide import (
    KUBERNETES,
    SKEW_SECONDS,
    STALE_SECONDS,
    Finding,
    Kind,
    NodeView,
    decide,
)
from images.health.watch.limit import Limit
from images.health.watch.reason import lifted, parse, reason_for
from tests.unit.images.health.watch.decisions import OURS, SPARE, deciding, done, faults
from tests.unit.images.health.watch.views import NOW, OK, UNKNOWN, WARN, failed, found, policy, view

# ---------------------------------------------------------------- draining


def test_a_failure_drains_exactly_that_node_with_the_reason() -> None:
    decision = deciding(view("w-0", disks=failed("/jail 97 % used")), view("w-1", disks=OK))
    assert done(decision) == [("drain", "w-0", OURS)]


def test_the_running_jobs_do_not_keep_a_node_from_being_drained() -> None:
    assert done(deciding(view("w-0", "ALLOCATED", disks=failed()))) == [("drain", "w-0", "health/disks [node]: broken")]


@pytest.mark.parametrize("result", [OK, WARN, UNKNOWN])
def test_what_is_not_a_failure_drains_nothing(result: Result) -> None:
    assert not deciding(view(disks=result)).actions


def test_a_node_without_a_report_is_left_alone() -> None:
    assert not deciding(view(), view("w-1", "IDLE", "DRAIN", reason=OURS)).actions


def test_an_old_failure_drains_nothing() -> None:
    assert deciding(view(disks=found(failed(), ago=STALE_SECONDS - 1))).actions
    assert not deciding(view(disks=found(failed(), ago=STALE_SECONDS + 1))).actions


def test_a_report_from_the_future_counts_only_if_it_was_seen_to_come() -> None:
    ahead = -SKEW_SECONDS - 60
    assert not deciding(view(clock=found(failed(), ago=ahead))).actions
    assert deciding(view(clock=found(failed(), ago=ahead, arrived_ago=2))).actions
    assert not deciding(view(clock=found(failed(), ago=ahead, arrived_ago=STALE_SECONDS + 1))).actions


def test_a_node_whose_clock_is_slow_is_drained_for_it() -> None:
    assert deciding(view(clock=found(failed("3600 s behind"), ago=3600, arrived_ago=2))).actions


def test_the_gravest_failure_gives_the_reason() -> None:
    node = view(disks=failed(), memory=failed("left behind", "user"), gpu_xid=failed("Xid 79", "hardware"))
    assert done(deciding(node)) == [("drain", "w-0", "health/gpu-xid [hardware]: Xid 79")]


def test_a_check_that_is_only_reported_drains_nothing() -> None:
    by = policy(report_only=frozenset({"disks"}))
    assert not deciding(view(disks=failed()), by=by).actions
    assert done(deciding(view(disks=failed(), dns=failed("no answer")), by=by)) == [
        ("drain", "w-0", "health/dns [node]: no answer")
    ]


def test_a_drain_for_a_check_that_is_only_reported_is_lifted() -> None:
    by = policy(report_only=frozenset({"disks"}))
    assert OURS.startswith("health/disks ")
    assert done(deciding(view("w-0", "IDLE", "DRAIN", reason=OURS, disks=failed()), by=by))[0][0] == "resume"
    assert done(deciding(view("w-0", "IDLE", "DRAIN", reason=OURS), by=by))[0][0] == "resume", "nobody looks any more"
    assert done(deciding(view("w-0", "IDLE", "DRAIN", reason=OURS, dns=failed("no answer")), by=by)) == [
        ("reason", "w-0", "health/dns [node]: no answer")
    ]


def test_a_reason_that_outlived_its_drain_is_no_drain() -> None:
    busy = view("w-0", "MIXED", reason=OURS, disks=failed("again"))
    assert done(deciding(busy)) == [("drain", "w-0", "health/disks [node]: again")]
    assert not deciding(view("w-0", "MIXED", reason=OURS, disks=OK)).actions


@pytest.mark.parametrize(
    "state", ["POWERED_DOWN", "POWERING_UP", "POWERING_DOWN", "FUTURE", "REBOOT_ISSUED", "UNKNOWN", "INVALID_REG"]
)
def test_a_node_that_slurm_does_not_use_is_left_alone(state: str) -> None:
    lost = Finding(result=failed(), at=NOW, lost=True)
    assert not deciding(view("w-0", "IDLE", state, disks=failed(), kubernetes=lost)).actions
    assert not deciding(view("w-0", "IDLE", "DRAIN", state, reason=OURS, kubernetes=lost)).actions


# ---------------------------------------------------------------- an administrator's word


@pytest.mark.parametrize("states", [("IDLE", "DRAIN"), ("ALLOCATED", "DRAIN"), ("DOWN",), ("IDLE", "FAIL")])
@pytest.mark.parametrize(
    "reason",
    [
        "bad fan",
        "",
        "slurmstack: pod leaving",
        "slurmstack:waiting-for-topology",
        "health",
        "health/",
        "x health/disks",
        "health/disks is no matter, keep it",
        "health/disks [node] looked at by me",
    ],
)
@pytest.mark.parametrize("result", [OK, failed(fault="hardware")])
def test_what_somebody_else_closed_is_never_touched(states: tuple[str, ...], reason: str, result: Result) -> None:
    lost = Finding(result=failed(), at=NOW, lost=True)
    assert not deciding(view("w-0", *states, reason=reason, disks=result)).actions
    assert not deciding(view("w-0", *states, reason=reason, disks=result, kubernetes=lost)).actions


def test_a_state_of_fail_is_an_administrators_even_with_our_reason() -> None:
    assert not deciding(view("w-0", "IDLE", "FAIL", reason=OURS, disks=OK)).actions


# ---------------------------------------------------------------- resuming


@pytest.mark.parametrize("states", [("IDLE", "DRAIN"), ("ALLOCATED", "DRAIN"), ("DOWN", "DRAIN")])
def test_the_same_check_well_again_lifts_the_drain(states: tuple[str, ...]) -> None:
    decision = deciding(view("w-0", *states, reason=OURS, disks=OK))
    assert done(decision) == [("resume", "w-0", "lifted: health/disks")]


@pytest.mark.parametrize("result", [WARN, UNKNOWN, failed("/jail 97 % used")])
def test_the_drain_stays_while_the_check_is_not_well(result: Result) -> None:
    assert not deciding(view("w-0", "IDLE", "DRAIN", reason=OURS, disks=result)).actions


def test_another_check_that_is_well_lifts_nothing() -> None:
    assert not deciding(view("w-0", "IDLE", "DRAIN", reason=OURS, disks_2=OK, dns=OK)).actions
    assert not deciding(view("w-0", "IDLE", "DRAIN", reason="health/disks-2: x", disks=OK)).actions


@pytest.mark.parametrize(("looked_ago", "lifts"), [(61.0, False), (60.0, False), (55.1, False), (54.0, True)])
def test_a_report_from_before_the_drain_lifts_nothing(looked_ago: float, lifts: bool) -> None:
    """Even if it came after it: what comes after a drain may have been found before."""
    report = found(OK, ago=looked_ago, arrived_ago=1)
    node = view("w-0", "IDLE", "DRAIN", reason=OURS, drained_ago=60, disks=report)
    assert bool(deciding(node).actions) is lifts


def test_a_report_of_a_fast_clock_lifts_nothing() -> None:
    node = view("w-0", "IDLE", "DRAIN", reason=OURS, disks=found(OK, ago=-SKEW_SECONDS - 1, arrived_ago=0))
    assert not deciding(node).actions


def test_an_old_report_lifts_nothing() -> None:
    report = found(OK, ago=STALE_SECONDS + 1, arrived_ago=STALE_SECONDS + 1)
    assert not deciding(view("w-0", "IDLE", "DRAIN", reason=OURS, drained_ago=5000, disks=report)).actions


def test_a_drain_of_unknown_age_is_not_lifted() -> None:
    node = NodeView(name="w-0", states=frozenset({"IDLE", "DRAIN"}), reason=OURS, findings={"disks": found(OK)})
    assert not deciding(node).actions


def test_a_node_with_another_fault_stays_drained_for_that() -> None:
    node = view("w-0", "IDLE", "DRAIN", reason=OURS, disks=OK, dns=failed("no answer"))
    assert done(deciding(node)) == [("reason", "w-0", "health/dns [node]: no answer")]


def test_a_graver_fault_becomes_the_reason_and_a_lesser_one_does_not() -> None:
    node = view("w-0", "IDLE", "DRAIN", reason=OURS, disks=failed(), gpu_xid=failed("Xid 79", "hardware"))
    assert done(deciding(node)) == [("reason", "w-0", "health/gpu-xid [hardware]: Xid 79")]
    for lesser in ("user", "node"):
        other = failed(fault="user" if lesser == "user" else "node")
        assert not deciding(view("w-0", "IDLE", "DRAIN", reason=OURS, disks=failed(), aaa=other)).actions


def test_a_fault_that_turns_out_graver_becomes_the_reason_once() -> None:
    reason = "health/gpu-xid [user]: Xid 31"
    graver = failed("Xid 79", "hardware")
    node = view("w-0", "IDLE", "DRAIN", reason=reason, gpu_xid=graver)
    assert done(deciding(node)) == [("reason", "w-0", "health/gpu-xid [hardware]: Xid 79")]
    told = view("w-0", "IDLE", "DRAIN", reason="health/gpu-xid [hardware]: Xid 79", gpu_xid=graver)
    assert not deciding(told).actions
    lesser = view("w-0", "IDLE", "DRAIN", reason=told.reason, gpu_xid=failed("Xid 31", "user"))
    assert not deciding(lesser).actions


def test_figures_that_move_do_not_change_the_reason() -> None:
    assert not deciding(view("w-0", "IDLE", "DRAIN", reason=OURS, disks=failed("/jail 98 % used"))).actions


def test_a_drain_and_a_lifting_never_alternate_on_the_same_report() -> None:
    node = view("w-0", disks=failed())
    (action,) = deciding(node).actions
    drained = NodeView(
        name="w-0", states=frozenset({"IDLE", "DRAIN"}), reason=action.reason, reason_at=NOW, findings=node.findings
    )
    assert not deciding(drained).actions


def test_a_drain_that_is_not_settled_stays_and_so_does_its_reason() -> None:
    node = view("w-0", "IDLE", "DRAIN", reason=OURS, disks=OK)
    assert not decide([node, *SPARE], policy(), NOW, frozenset({"w-0"})).actions
    assert decide([node, *SPARE], policy(), NOW, frozenset({"w-1"})).actions
    other = view("w-0", "IDLE", "DRAIN", reason=OURS, disks=OK, dns=failed("no answer"))
    assert not decide([other, *SPARE], policy(), NOW, frozenset({"w-0"})).actions


# ---------------------------------------------------------------- the limit


def test_ten_faults_at_once_respect_the_limit() -> None:
    decision = decide(faults(10) + SPARE, policy("3"), NOW)
    assert [action.node.name for action in decision.actions] == ["w-00", "w-01", "w-02"]
    assert len(decision.held) == 7


def test_nodes_that_are_drained_already_count() -> None:
    drained = [view(f"d-{number}", "IDLE", "DRAIN", reason=OURS, disks=failed()) for number in range(2)]
    assert len(decide([*drained, *faults(5), *SPARE], policy("3"), NOW).actions) == 1
    assert not decide([*drained, *faults(5), *SPARE], policy("2"), NOW).actions


def test_nodes_that_are_measured_again_keep_their_place_and_take_no_jobs() -> None:
    old = found(failed(), ago=1900)
    retested = [view(f"r-{number}", "IDLE", "MAINTENANCE", cpu_speed=old) for number in range(2)]
    assert len(decide([*retested, *faults(5), *SPARE], policy("3"), NOW).actions) == 1
    assert not decide([*retested, *faults(5), *SPARE], policy("2"), NOW).actions
    assert not decide([*retested, *faults(1)], policy("100"), NOW).actions, "the last node that takes jobs"
    assert not decide(retested, policy("100"), NOW).actions, "for what was found before they were drained"
    well = [view(f"r-{number}", "IDLE", "MAINTENANCE", cpu_speed=OK) for number in range(2)]
    assert len(decide([*well, *faults(5), *SPARE], policy("3"), NOW).actions) == 3


def test_a_node_in_maintenance_that_fails_is_drained_as_any_other() -> None:
    broken = view("m-0", "IDLE", "MAINTENANCE", disks=failed())
    assert [action.node.name for action in decide([broken, *SPARE], policy("1"), NOW).actions] == ["m-0"]


def test_an_administrators_drains_do_not_count() -> None:
    drained = [view(f"d-{number}", "IDLE", "DRAIN", reason="bad fan") for number in range(5)]
    assert len(decide([*drained, *faults(5), *SPARE], policy("3"), NOW).actions) == 3


def test_a_fault_of_the_machine_goes_first() -> None:
    nodes = [*faults(5), view("z-9", gpu_xid=failed("Xid 79", "hardware"))]
    assert [action.node.name for action in decide(nodes + SPARE, policy("1"), NOW).actions] == ["z-9"]


def test_the_last_node_that_takes_jobs_is_never_drained() -> None:
    decision = decide(faults(4), policy("100"), NOW)
    assert len(decision.actions) == 3
    closed = [
        view("d-0", "IDLE", "DRAIN", reason="bad fan"),
        view("d-1", "DOWN"),
        view("d-2", "IDLE", "NOT_RESPONDING"),
    ]
    assert not decide([view("w-0", disks=failed()), *closed], policy("100"), NOW).actions


def test_a_part_is_one_of_the_nodes_that_are_there() -> None:
    asleep = [view(f"s-{number}", "IDLE", "POWERED_DOWN") for number in range(90)]
    assert len(decide([*faults(10), *asleep], policy("10%"), NOW).actions) == 1


def test_a_limit_of_none_drains_nothing() -> None:
    assert not decide(faults(5) + SPARE, policy("0"), NOW).actions


@pytest.mark.parametrize(("text", "nodes", "limit"), [("3", 2, 3), ("10%", 100, 10), ("10%", 5, 1), ("0%", 50, 0)])
def test_a_limit_is_a_number_or_a_part(text: str, nodes: int, limit: int) -> None:
    assert Limit.parse(text).of(nodes) == limit
    assert str(Limit.parse(text)) == text


@pytest.mark.parametrize("text", ["", "-1", "many", "101%", "1.5", "10 nodes"])
def test_a_limit_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no number of nodes"):
        Limit.parse(text)


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
    drained = sum(action.node.takes_jobs for action in decision.actions if action.kind is Kind.DRAIN)
    assert usable == 0 or drained < usable
    for action in decision.actions:
        assert action.node.own is not None or not action.node.is_closed
        assert action.kind is not Kind.RESUME or parse(action.node.reason) is not None
    assert len({action.node.name for action in decision.actions}) == len(decision.actions)


# ---------------------------------------------------------------- reasons


def test_a_reason_is_one_line_and_is_read_back() -> None:
    reason = reason_for("gpu-xid", failed('line one\nline "two" | three', "hardware"))
    assert reason == "health/gpu-xid [hardware]: line one line 'two' / three"
    own = parse(reason)
    assert own is not None
    assert (own.check, own.fault) == ("gpu-xid", "hardware")


def test_a_failure_without_a_class_is_the_nodes() -> None:
    assert reason_for("x", failed("m", None)) == "health/x [node]: m"


def test_a_lifted_reason_is_not_ours() -> None:
    assert parse(lifted(OURS)) is None
    assert KUBERNETES in lifted("health/kubernetes [node]: machine m-0 is cordoned")
