"""What is done about nodes whose machine Kubernetes, or somebody, has something to say about."""

from __future__ import annotations

from dataclasses import replace

import pytest

from images.health.contract import Result
from images.health.watch.decide import Finding, Kind, Policy, decide
from tests.unit.images.health.watch.decisions import OURS, SPARE, deciding, done, faults
from tests.unit.images.health.watch.views import NOW, OK, UNKNOWN, failed, policy, view


def kube(message: str, *, declared: bool = False, lost: bool = False) -> Finding:
    return Finding(result=failed(message), at=NOW, arrived=NOW, declared=declared, lost=lost)


CORDONED = kube("machine m-0 is cordoned", declared=True)
GONE = kube("machine m-0 is gone", lost=True)
CORDON_REASON = "health/kubernetes [node]: machine m-0 is cordoned"


def test_a_cordoned_machine_is_drained_without_regard_to_the_limit() -> None:
    nodes = [view(f"w-{number}", kubernetes=CORDONED) for number in range(4)]
    assert len(decide(nodes, policy("1"), NOW).actions) == 4


def test_machines_that_somebody_wants_free_leave_room_for_faults() -> None:
    cordoned = [view(f"c-{n}", "IDLE", "DRAIN", reason=CORDON_REASON, kubernetes=CORDONED) for n in range(4)]
    assert len(decide([*cordoned, *faults(3), *SPARE], policy("1"), NOW).actions) == 1


def test_a_condition_on_all_machines_at_once_is_held_back_by_the_limit() -> None:
    unwanted = Finding(result=failed("maintenance"), at=NOW, declared=True, unwanted_since=NOW - 60)
    nodes = [view(f"w-{number}", kubernetes=unwanted) for number in range(10)]
    assert len(decide(nodes, policy("2"), NOW).actions) == 2
    assert len(decide(nodes, policy("100"), NOW).actions) == 9


def test_many_machines_that_are_not_ready_are_held_back_by_the_limit() -> None:
    nodes = [view(f"w-{number}", kubernetes=kube("not ready")) for number in range(10)]
    assert len(decide(nodes, policy("10%"), NOW).actions) == 1


def test_a_lost_machine_is_set_down_once() -> None:
    assert done(deciding(view(kubernetes=GONE))) == [("down", "w-0", "health/kubernetes [node]: machine m-0 is gone")]
    down = view("w-0", "DOWN", "DRAIN", reason="health/kubernetes [node]: machine m-0 is gone", kubernetes=GONE)
    assert not deciding(down).actions


def test_a_lost_machine_that_was_drained_for_a_check_is_set_down_too() -> None:
    node = view("w-0", "ALLOCATED", "DRAIN", reason=OURS, disks=failed(), kubernetes=GONE)
    assert [action.kind for action in deciding(node).actions] == [Kind.DOWN]


def test_a_drained_node_without_jobs_keeps_its_reason_when_its_machine_is_gone() -> None:
    """Else it would be resumed as soon as there is another machine, before that is checked for what the reason says."""
    node = view("w-0", "IDLE", "DRAIN", reason=OURS, disks=failed(), kubernetes=GONE)
    assert not deciding(node).actions
    assert deciding(view("w-0", "IDLE", "COMPLETING", "DRAIN", reason=OURS, kubernetes=GONE)).actions


def test_the_last_node_is_set_down_when_it_is_lost() -> None:
    assert decide([view(kubernetes=GONE)], policy("1"), NOW).actions


def test_drained_nodes_and_lost_ones_share_the_limit() -> None:
    drained = view("d-0", "IDLE", "DRAIN", reason=OURS, disks=failed())
    assert not deciding(drained, view(kubernetes=GONE), by=policy("1")).actions
    assert deciding(drained, view(kubernetes=GONE), by=policy("2")).actions


def test_a_machine_that_somebody_wants_free_goes_before_a_fault_of_the_last_node() -> None:
    nodes = [view("w-0", gpu_xid=failed("Xid 79", "hardware")), view("w-1", kubernetes=CORDONED)]
    assert [action.node.name for action in decide(nodes, policy(), NOW).actions] == ["w-1"]


def test_losing_all_machines_at_once_ends_the_jobs_of_few() -> None:
    fresh = [view(f"w-{number}", kubernetes=GONE) for number in range(10)]
    cordoned = [view(f"c-{n}", "ALLOCATED", "DRAIN", reason=CORDON_REASON, kubernetes=GONE) for n in range(10)]
    assert len(decide(fresh, policy("2"), NOW).actions) == 2
    assert sum(action.kind is Kind.DOWN for action in decide(cordoned, policy("2"), NOW).actions) == 2


def test_an_uncordoned_machine_is_resumed_by_the_same_rule() -> None:
    well = Finding(result=OK, at=NOW, arrived=NOW)
    assert done(deciding(view("w-0", "IDLE", "DRAIN", reason=CORDON_REASON, kubernetes=well))) == [
        ("resume", "w-0", "lifted: health/kubernetes")
    ]
    assert not deciding(view("w-0", "IDLE", "DRAIN", reason=CORDON_REASON, kubernetes=UNKNOWN)).actions
    assert not deciding(view("w-0", "IDLE", "DRAIN", reason="maintenance", kubernetes=well)).actions


def test_jobs_on_a_cordoned_machine_are_requeued_after_the_deadline_and_not_before() -> None:
    def at(ago: float, *states: str, by: float | None) -> list[Kind]:
        node = view("w-0", *states, "DRAIN", reason=CORDON_REASON, drained_ago=ago, kubernetes=CORDONED)
        return [action.kind for action in deciding(node, by=policy(requeue_after=by)).actions]

    assert at(599, "MIXED", by=600) == []
    assert at(600, "MIXED", by=600) == [Kind.REQUEUE]
    assert at(600, "IDLE", by=600) == []
    assert at(10**6, "ALLOCATED", by=None) == []


def test_no_job_is_requeued_while_nobody_knows_about_the_machine() -> None:
    node = view("w-0", "MIXED", "DRAIN", reason=CORDON_REASON, drained_ago=9999, kubernetes=UNKNOWN)
    assert not deciding(node, by=policy(requeue_after=60)).actions


def test_a_deadline_that_runs_is_not_started_again_by_another_fault() -> None:
    hardware = failed("Xid 79", "hardware")
    node = view("w-0", "MIXED", "DRAIN", reason=CORDON_REASON, gpu_xid=hardware, kubernetes=kube("not ready"))
    assert not deciding(node, by=policy(requeue_after=600)).actions


def test_the_deadline_is_for_machines_and_not_for_failed_checks() -> None:
    node = view("w-0", "MIXED", "DRAIN", reason=OURS, drained_ago=9999, disks=failed())
    assert not deciding(node, by=policy(requeue_after=60)).actions


def test_the_deadline_is_for_hardware_faults_too_where_their_machines_are_released() -> None:
    xid = "health/gpu-xid [hardware]: Xid 79"
    broken = failed("Xid 79", "hardware")

    def kinds(by: Policy, reason: str = xid, *, ago: float = 600, **findings: Result | Finding) -> list[Kind]:
        node = view("w-0", "MIXED", "DRAIN", reason=reason, drained_ago=ago, **(findings or {"gpu_xid": broken}))
        return [action.kind for action in deciding(node, by=by).actions]

    by = policy(requeue_after=600, frees_broken=True)
    assert kinds(by) == [Kind.REQUEUE]
    assert kinds(by, ago=599) == []
    assert kinds(by, gpu_xid=UNKNOWN) == []
    assert kinds(by, OURS, disks=failed()) == []
    assert kinds(policy(requeue_after=600)) == []
    assert kinds(policy(frees_broken=True)) == []
    # It runs already: a cordon does not start it again.
    assert kinds(by, ago=599, gpu_xid=broken, kubernetes=CORDONED) == []
    assert kinds(policy(requeue_after=600), ago=599, gpu_xid=broken, kubernetes=CORDONED) == [Kind.REASON]


def test_a_drained_node_whose_machine_is_cordoned_gets_the_deadline_from_then_on() -> None:
    node = view("w-0", "MIXED", "DRAIN", reason=OURS, disks=failed(), kubernetes=CORDONED)
    assert not deciding(node).actions
    assert done(deciding(node, by=policy(requeue_after=60))) == [("reason", "w-0", CORDON_REASON)]
    told = view("w-0", "MIXED", "DRAIN", reason=CORDON_REASON, drained_ago=9, disks=failed(), kubernetes=CORDONED)
    assert not deciding(told, by=policy(requeue_after=60)).actions


# ---------------------------------------------------------------- what may be another machine now

RESUMED, MEASURED_FIRST = "resume", "reason"


@pytest.mark.parametrize(
    ("reason", "started_ago", "measured_ago", "wanted"),
    [
        ("health/gpu-presence [hardware]: lost", 30, None, MEASURED_FIRST),
        ("health/gpu-presence [hardware]: lost", 30, 40, MEASURED_FIRST),
        ("health/gpu-presence [hardware]: lost", 30, 20, RESUMED),
        ("health/gpu-presence [hardware]: lost", None, 20, RESUMED),
        ("health/gpu-presence [node]: no driver", 30, 40, RESUMED),
        (CORDON_REASON, 30, 40, MEASURED_FIRST),
        (CORDON_REASON, 30, 20, RESUMED),
    ],
)
def test_what_may_be_another_machine_now_is_measured_before_it_takes_jobs(
    reason: str, started_ago: float | None, measured_ago: float | None, wanted: str
) -> None:
    drained = replace(
        view("w-0", "IDLE", "DRAIN", reason=reason, gpu_presence=OK, kubernetes=OK),
        started_at=None if started_ago is None else NOW - started_ago,
        measured_at=None if measured_ago is None else NOW - measured_ago,
    )
    by = replace(policy(), measures_new=True)
    ((kind, _, new_reason),) = done(deciding(drained, by=by))
    assert kind == wanted
    assert new_reason.startswith("health/new-machine [node]: ") == (wanted == MEASURED_FIRST)
    assert [kind for kind, _, _ in done(deciding(drained))] == [RESUMED], "where no tests of nodes run"
    check = "kubernetes" if "kubernetes" in reason else "gpu-presence"
    reported = replace(by, report_only=frozenset({check}))
    assert [kind for kind, _, _ in done(deciding(drained, by=reported))] == [RESUMED], "the check counts no more"
