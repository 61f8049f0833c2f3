"""Which machines are released and taken back: never one too many, never one that somebody else has a hand on."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from images.health.contract import Result
from images.health.watch.decide import KUBERNETES, STALE_SECONDS, Finding, NodeView
from images.health.watch.limit import Limit
from images.health.watch.machines import Machine, Place
from images.health.watch.release import Plan, Rules, Step, plan
from tests.unit.images.health.watch.views import NOW, OK, UNKNOWN, WARN, failed, found, view

BROKEN = failed("GPU 3: Xid 79", "hardware")
REASON = "health/gpu-xid [hardware]: GPU 3: Xid 79"
READY = Machine(ready="True", conditions={})
RELEASED = Machine(
    ready="True", conditions={}, cordoned=True, released_for="health/gpu-xid", released_by="ns/w-0", version="7"
)
UNWANTED = Finding(result=failed("maintenance"), at=NOW, declared=True, unwanted_since=NOW - 5000)
CORDONED = Finding(result=failed("cordoned"), at=NOW, declared=True)


def rules(
    max_unavailable: str = "100", *, evict: bool = False, condition: str = "", report_only: str = "", after: float = 600
) -> Rules:
    return Rules(
        namespace="ns",
        evict=evict,
        max_unavailable=Limit.parse(max_unavailable),
        after=after,
        condition=condition,
        report_only=frozenset(report_only.split()),
    )


def broken(name: str = "w-0", *states: str, drained_ago: float = 1000, **findings: Result | Finding) -> NodeView:
    """A node that is drained for a hardware fault and has no jobs."""
    findings = findings or {"gpu_xid": BROKEN}
    return view(name, *(states or ("IDLE", "DRAIN")), reason=REASON, drained_ago=drained_ago, **findings)


def place(machine: str, *, started_ago: float = 9000, leaving: bool = False) -> Place:
    return Place(node=machine, uid=f"uid on {machine}", started=NOW - started_ago, leaving=leaving)


def planned(*views: NodeView, by: Rules | None = None, machine: Machine = READY, at: Place | None = None) -> Plan:
    """A plan for w-0 on m-0; other nodes are on machines of their own."""
    places = {each.name: place(f"m-{each.name[2:]}") for each in views}
    machines = {where.node: READY for where in places.values()} | {"m-0": machine}
    return plan(views, places | {"w-0": at or place("m-0")}, machines, by or rules(), NOW)


def done(made: Plan) -> list[tuple[str, str, str, str]]:
    return [(move.step.name, move.machine, move.worker, move.check) for move in made.moves]


THE_RELEASE = [("RELEASE", "m-0", "w-0", "health/gpu-xid")]

# ---------------------------------------------------------------- releasing


def test_a_drained_node_with_a_hardware_fault_and_without_jobs_has_its_machine_released() -> None:
    made = planned(broken(), view("w-1", gpu_xid=OK))
    assert done(made) == THE_RELEASE
    assert made.moves[0].why == "GPU 3: Xid 79"


def test_a_machine_that_maintenance_wants_away_is_released() -> None:
    node = view("w-0", "IDLE", "DRAIN", reason="health/kubernetes [node]: m", drained_ago=1000, kubernetes=UNWANTED)
    assert done(planned(node)) == [("RELEASE", "m-0", "w-0", "health/kubernetes")]


def test_a_machine_that_maintenance_wants_away_is_released_whatever_it_was_drained_for_first() -> None:
    node = view("w-0", "IDLE", "DRAIN", reason="health/disks [node]: x", drained_ago=1000, kubernetes=UNWANTED)
    assert [move.step for move in planned(node).moves] == [Step.RELEASE]


def test_a_machine_that_a_person_has_cordoned_is_theirs() -> None:
    node = view("w-0", "IDLE", "DRAIN", reason="health/kubernetes [node]: m", drained_ago=1000, kubernetes=CORDONED)
    assert not planned(node).moves
    cordoned = replace(READY, cordoned=True)
    assert not planned(node, machine=cordoned).moves
    assert not planned(broken(), machine=cordoned).moves
    assert not planned(replace(node, findings={KUBERNETES: UNWANTED}), machine=cordoned).moves


@pytest.mark.parametrize("ago", [0.0, 599.0])
def test_a_fault_that_may_go_away_by_itself_is_not_worth_a_machine(ago: float) -> None:
    assert not planned(broken(drained_ago=ago)).moves
    assert planned(broken(drained_ago=600)).moves


def test_a_condition_that_came_after_the_drain_has_to_stand_as_long() -> None:
    late = replace(UNWANTED, unwanted_since=NOW - 599)
    node = view("w-0", "IDLE", "DRAIN", reason="health/kubernetes [node]: m", drained_ago=5000, kubernetes=late)
    assert not planned(node).moves


@pytest.mark.parametrize("states", [("ALLOCATED", "DRAIN"), ("MIXED", "DRAIN"), ("IDLE", "COMPLETING", "DRAIN")])
def test_a_node_with_jobs_keeps_its_machine(states: tuple[str, ...]) -> None:
    assert not planned(broken("w-0", *states)).moves


@pytest.mark.parametrize("states", [("IDLE",), ("DOWN",), ("IDLE", "DRAIN", "POWERING_UP"), ("IDLE", "DRAIN", "FAIL")])
def test_a_node_that_is_not_drained_by_us_keeps_its_machine(states: tuple[str, ...]) -> None:
    assert not planned(broken("w-0", *states)).moves


@pytest.mark.parametrize("reason", ["bad fan", "", "slurmstack: pod leaving", "gpu-xid [hardware]: x"])
def test_a_node_that_a_person_has_drained_keeps_its_machine(reason: str) -> None:
    assert not planned(replace(broken(), reason=reason)).moves


@pytest.mark.parametrize("result", [OK, WARN, UNKNOWN, failed(fault="node"), failed(fault="user"), failed(fault=None)])
def test_only_a_check_that_fails_now_for_the_hardware_is_worth_a_machine(result: Result) -> None:
    assert not planned(broken(gpu_xid=result)).moves


def test_a_fault_of_another_check_than_that_of_the_drain_is_not() -> None:
    node = view("w-0", "IDLE", "DRAIN", reason="health/disks [node]: x", drained_ago=1000, gpu_xid=BROKEN)
    assert not planned(node).moves
    assert not planned(broken(gpu_links=BROKEN)).moves
    assert not planned(replace(broken(), reason="health/gpu-xid [user]: Xid 31")).moves


def test_an_old_report_is_not() -> None:
    assert not planned(broken(gpu_xid=found(BROKEN, ago=STALE_SECONDS + 1))).moves


def test_a_check_that_is_only_reported_is_not() -> None:
    assert not planned(broken(), by=rules(report_only="gpu-xid")).moves


def test_what_was_found_on_the_machine_before_is_not_held_against_this_one() -> None:
    node = broken(gpu_xid=found(BROKEN, ago=100))
    assert not planned(node, at=place("m-0", started_ago=90), by=rules(after=0)).moves
    assert not planned(node, at=place("m-0", started_ago=100), by=rules(after=0)).moves
    assert planned(node, at=place("m-0", started_ago=110), by=rules(after=0)).moves


def test_the_time_begins_anew_on_another_machine() -> None:
    assert not planned(broken(drained_ago=5000), at=place("m-0", started_ago=599)).moves
    assert planned(broken(drained_ago=5000), at=place("m-0", started_ago=600)).moves


def test_a_pod_of_unknown_age_or_without_a_machine_or_that_leaves_releases_nothing() -> None:
    for where in (Place(node="m-0"), replace(place("m-0"), node=""), place("m-0", leaving=True)):
        assert not planned(broken(), at=where).moves


def test_a_machine_with_another_worker_in_use_is_not_released() -> None:
    def both(other: NodeView | None, where: str = "m-0") -> Plan:
        places = {"w-0": place("m-0"), "w-1": place(where)}
        return plan([broken(), *([other] if other else [])], places, {"m-0": READY, "m-1": READY}, rules(), NOW)

    assert not both(view("w-1")).moves
    assert not both(view("w-1", "IDLE", "DRAIN", reason="bad fan")).moves
    assert not both(broken("w-1", "ALLOCATED", "DRAIN")).moves
    assert not both(None).moves
    assert done(both(broken("w-1", disks=failed()))) == THE_RELEASE
    assert done(both(view("w-1"), where="m-1")) == THE_RELEASE


def test_a_machine_without_our_workers_is_never_touched() -> None:
    assert not plan(
        [broken()], {}, {"m-0": READY, "m-1": replace(RELEASED, released_by="other/w-0")}, rules(), NOW
    ).moves


def test_a_machine_that_another_cluster_has_released_is_theirs() -> None:
    other = replace(RELEASED, released_by="other/w-0")
    assert not planned(broken(), machine=other, by=rules(evict=True, condition="C")).moves
    assert not planned(broken(), machine=replace(other, cordoned=False)).moves


@pytest.mark.parametrize("keep", ["health/gpu-xid", "mine"])
def test_a_machine_that_is_to_be_kept_is_kept(keep: str) -> None:
    assert not planned(broken(), machine=replace(READY, keep=keep)).moves
    assert not planned(broken(), machine=replace(RELEASED, keep=keep), by=rules(evict=True, condition="C")).moves


# ---------------------------------------------------------------- the limit


def fleet(count: int) -> list[NodeView]:
    """All broken, the last one for the longest time."""
    return [broken(f"w-{number}", drained_ago=1000 + number) for number in range(count)]


def test_no_more_than_the_limit_is_released_and_the_oldest_fault_goes_first() -> None:
    made = planned(*fleet(5), by=rules("2"))
    assert [move.machine for move in made.moves] == ["m-4", "m-3"]
    assert [move.machine for move in made.held] == ["m-2", "m-1", "m-0"]
    assert not planned(*fleet(5), by=rules("0")).moves
    assert len(planned(*fleet(10), by=rules("20%")).moves) == 2


def test_machines_that_are_released_already_count() -> None:
    assert len(planned(*fleet(3), machine=RELEASED, by=rules("2")).moves) == 1
    assert not planned(*fleet(3), machine=RELEASED, by=rules("1")).moves


@pytest.mark.parametrize("ready", ["False", "Unknown"])
def test_machines_that_are_not_ready_count_but_are_not_counted_twice(ready: str) -> None:
    away = replace(READY, ready=ready)
    assert not planned(view("w-0"), broken("w-1"), machine=away, by=rules("1")).moves
    assert planned(view("w-0"), broken("w-1"), machine=away, by=rules("2")).moves
    assert done(planned(broken(), machine=away, by=rules("1"))) == THE_RELEASE


def test_a_machine_that_is_gone_counts() -> None:
    places = {"w-0": place("m-0"), "w-1": place("m-1")}
    assert not plan([broken(), view("w-1")], places, {"m-0": READY}, rules("1"), NOW).moves


def test_a_machine_that_was_released_and_left_counts_and_the_worker_that_waits_for_another_is_not_counted_twice() -> (
    None
):
    places = {"w-0": place("m-0"), "w-1": Place(node="")}
    views = [broken(), broken("w-1", "DOWN", "DRAIN")]
    left = replace(RELEASED, released_by="ns/w-1")
    assert not plan(views, places, {"m-0": READY, "m-1": left}, rules("1"), NOW).moves
    assert plan(views, places, {"m-0": READY, "m-1": left}, rules("2"), NOW).moves
    elsewhere = places | {"w-1": place("m-2")}
    assert not plan(views, elsewhere, {"m-0": READY, "m-1": left, "m-2": READY}, rules("1"), NOW).moves
    # The cloud has deleted the Node, and its machine has no successor yet.
    assert not plan(views, places, {"m-0": READY}, rules("1"), NOW).moves
    assert plan(views, places | {"w-1": place("m-1")}, {"m-0": READY, "m-1": READY}, rules("1"), NOW).moves


def test_machines_that_others_have_cordoned_do_not_count() -> None:
    cordoned = replace(READY, cordoned=True)
    assert planned(view("w-0"), broken("w-1"), machine=cordoned, by=rules("1")).moves


# ---------------------------------------------------------------- released machines


def test_a_released_machine_is_left_as_it_is() -> None:
    assert not planned(broken(), machine=RELEASED).moves


def test_a_released_machine_gets_the_condition_until_it_has_it() -> None:
    by = rules(condition="Suspected")
    assert done(planned(broken(), machine=RELEASED, by=by)) == [("MARK", "m-0", "w-0", "health/gpu-xid")]
    assert not planned(broken(), machine=replace(RELEASED, conditions={"Suspected": "by others"}), by=by).moves
    assert not planned(broken(gpu_xid=OK), machine=RELEASED, by=by).moves
    # After a restart with the worker gone already.
    assert [move.step for move in plan([], {}, {"m-0": RELEASED}, by, NOW).moves] == [Step.MARK]


def test_the_worker_leaves_a_released_machine_if_the_site_wants_that() -> None:
    made = planned(broken(), machine=RELEASED, by=rules(evict=True, condition="Suspected"))
    assert [(move.step, move.worker, move.uid) for move in made.moves] == [
        (Step.MARK, "w-0", ""),
        (Step.EVICT, "w-0", "uid on m-0"),
    ]


@pytest.mark.parametrize(
    "node",
    [
        broken("w-0", "MIXED", "DRAIN"),
        broken("w-0", "IDLE", "COMPLETING", "DRAIN"),
        broken("w-0", "IDLE"),
        broken(gpu_xid=OK),
        broken(gpu_xid=UNKNOWN),
        replace(broken(), reason="bad fan"),
    ],
)
def test_a_worker_with_jobs_or_that_is_well_or_in_a_persons_hand_is_not_evicted(node: NodeView) -> None:
    assert not planned(node, machine=RELEASED, by=rules(evict=True)).moves


def test_a_worker_that_leaves_already_is_not_evicted_again() -> None:
    assert not planned(broken(), machine=RELEASED, by=rules(evict=True), at=place("m-0", leaving=True)).moves


def test_a_machine_whose_fault_has_passed_is_taken_back_when_its_node_is_resumed() -> None:
    resumed = view("w-0", gpu_xid=OK)
    assert done(planned(resumed, machine=RELEASED)) == [("TAKE_BACK", "m-0", "w-0", "health/gpu-xid")]
    assert done(planned(view("w-0", "MIXED", gpu_xid=OK), machine=RELEASED))
    assert not planned(broken(gpu_xid=OK), machine=RELEASED).moves


@pytest.mark.parametrize("result", [BROKEN, UNKNOWN, WARN, found(OK, ago=STALE_SECONDS + 1)])
def test_a_node_that_somebody_has_resumed_does_not_bring_its_machine_back_while_the_check_is_not_well(
    result: Result | Finding,
) -> None:
    assert not planned(view("w-0", gpu_xid=result), machine=RELEASED).moves
    assert not planned(view("w-0"), machine=RELEASED).moves


def test_that_a_worker_is_well_elsewhere_says_nothing_about_the_machine_that_it_left() -> None:
    well = view("w-0", gpu_xid=OK)
    machines = {"m-0": RELEASED, "m-1": READY}
    assert not plan([well], {"w-0": place("m-1")}, machines, rules(evict=True), NOW).moves
    assert not planned(well, machine=RELEASED, at=place("m-0", started_ago=0)).moves


def test_all_workers_of_a_machine_have_to_be_well() -> None:
    def back(other: NodeView) -> bool:
        places = {"w-0": place("m-0"), "w-1": place("m-0")}
        return bool(plan([view("w-0", gpu_xid=OK), other], places, {"m-0": RELEASED}, rules(), NOW).moves)

    assert back(view("w-1", gpu_xid=OK))
    assert back(view("w-1", disks=OK))
    assert not back(view("w-1", gpu_xid=BROKEN))
    assert not back(view("w-1", gpu_xid=UNKNOWN))
    assert not back(broken("w-1"))
    assert not back(view("w-2"))


def test_a_machine_that_somebody_has_uncordoned_is_left_to_them_until_it_is_well() -> None:
    uncordoned = replace(RELEASED, cordoned=False)
    assert done(planned(broken(), machine=uncordoned)) == [("KEEP", "m-0", "w-0", "health/gpu-xid")]
    kept = replace(READY, keep="health/gpu-xid")
    assert not planned(broken(drained_ago=10**6), machine=kept).moves
    assert not plan([], {}, {"m-0": kept}, rules(), NOW).moves
    assert done(planned(view("w-0", gpu_xid=OK), machine=kept)) == [("FORGET", "m-0", "w-0", "health/gpu-xid")]


def test_what_a_person_has_said_is_not_forgotten() -> None:
    assert not planned(view("w-0", gpu_xid=OK), machine=replace(READY, keep="mine, health/gpu-xid")).moves


def test_a_released_machine_whose_annotation_nobody_understands_is_not_taken_back() -> None:
    assert not planned(view("w-0", gpu_xid=OK), machine=replace(RELEASED, released_for="me")).moves


# ---------------------------------------------------------------- whatever comes

_MACHINES = st.sampled_from(
    [READY, RELEASED, replace(READY, cordoned=True), replace(READY, ready="False"), replace(RELEASED, cordoned=False)]
)
_STATES = st.sampled_from([("IDLE",), ("MIXED", "DRAIN"), ("IDLE", "DRAIN"), ("DOWN", "DRAIN")])
_REASONS = st.sampled_from(["", "bad fan", REASON])


@settings(max_examples=30)
@given(
    st.lists(st.tuples(_MACHINES, _STATES, _REASONS, st.sampled_from([OK, UNKNOWN, BROKEN])), max_size=12),
    st.integers(0, 4),
)
def test_whatever_comes_the_limit_holds_and_strangers_are_left_alone(
    drawn: list[tuple[Machine, tuple[str, ...], str, Result]], limit: int
) -> None:
    machines = {f"m-{number}": machine for number, (machine, *_) in enumerate(drawn)}
    views = {
        f"m-{number}": view(f"w-{number}", *states, reason=reason, drained_ago=1000, gpu_xid=result)
        for number, (_, states, reason, result) in enumerate(drawn)
    }
    places = {each.name: place(name) for name, each in views.items()}
    made = plan(views.values(), places, machines, rules(str(limit), evict=True), NOW)
    before = {name for name, machine in machines.items() if machine.released_for or machine.ready != "True"}
    released = {move.machine for move in made.moves if move.step is Step.RELEASE}
    assert len(before | released) <= max(limit, len(before))
    for name in released:
        assert not machines[name].cordoned
        assert not machines[name].released_for
    for move in made.moves:
        if move.step in {Step.RELEASE, Step.EVICT}:
            assert views[move.machine].reason == REASON
            assert views[move.machine].is_quiet
            assert views[move.machine].is_closed
        assert move.step is Step.RELEASE or machines[move.machine].released_for
