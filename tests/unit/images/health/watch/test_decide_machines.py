"""What is done about nodes whose machine Kubernetes, or somebody, has something to say about."""

from __future__ import annotations

from dataclasses import replace

from images.common.health.report import Finding
from images.health.watch.decide import NodeView, Policy, decide
from tests.unit.images.health.tables import table
from tests.unit.images.health.watch.views import (
    NOW,
    OK,
    SPARE,
    UNKNOWN,
    count,
    deciding,
    done,
    drained,
    failed,
    faults,
    policy,
    view,
)


def kube(message: str, *, declared: bool = False, lost: bool = False) -> Finding:
    return Finding(result=failed(message), at=NOW, arrived=NOW, declared=declared, lost=lost)


CORDONED, GONE = kube("machine m-0 is cordoned", declared=True), kube("machine m-0 is gone", lost=True)
CORDON_REASON, GONE_REASON = (
    "health/kubernetes [node]: machine m-0 is cordoned",
    "health/kubernetes [node]: machine m-0 is gone",
)
UNWANTED = Finding(result=failed("maintenance"), at=NOW, declared=True, unwanted_since=NOW - 60)
DOWN, RESUMED = [f"down w-0: {GONE_REASON}"], ["resume w-0: lifted: health/kubernetes"]
WELL = Finding(result=OK, at=NOW, arrived=NOW)
XID, XID_REASON = failed("Xid 79", "hardware"), "health/gpu-xid [hardware]: Xid 79"


@table(
    "node, actions",
    {
        "a lost machine is set down": (view(kubernetes=GONE), DOWN),
        "also if it was drained for a check": (drained("ALLOCATED", disks=failed(), kubernetes=GONE), DOWN),
        "and once only": (drained("DOWN", reason=GONE_REASON, kubernetes=GONE), []),
        # Else it would be resumed as soon as there is another machine, before that is checked for what the reason says.
        "a drained one without jobs keeps its reason": (drained(disks=failed(), kubernetes=GONE), []),
        "but not while a job ends": (drained("IDLE", "COMPLETING", kubernetes=GONE), DOWN),
        "an uncordoned machine is resumed": (drained(reason=CORDON_REASON, kubernetes=WELL), RESUMED),
        "not while nobody knows": (drained(reason=CORDON_REASON, kubernetes=UNKNOWN), []),
        "a drained node whose machine is cordoned": (drained("MIXED", disks=failed(), kubernetes=CORDONED), []),
    },
)
def test_what_is_known_of_a_machine_counts(node: NodeView, actions: list[str]) -> None:
    assert done(deciding(node)) == actions


def ten(finding: Finding) -> list[NodeView]:
    return [view(f"w-{number}", kubernetes=finding) for number in range(10)]


def left(*states: str, finding: Finding) -> list[NodeView]:
    """Ten nodes that are drained as their machines are cordoned."""
    node = drained(*states, reason=CORDON_REASON, kubernetes=finding)
    return [replace(node, name=f"c-{number}") for number in range(10)]


@table(
    "nodes, limit, kind, actions",
    {
        "cordons are followed without regard to the limit": ([*ten(CORDONED), *SPARE], "1", "drain", 10),
        "and leave room for faults": ([*left(finding=CORDONED), *faults(3), *SPARE], "1", "drain", 1),
        "a condition on all machines at once is held back": (ten(UNWANTED), "2", "drain", 2),
        "machines that are not ready all at once are left alone": (ten(kube("not ready")), "100%", "drain", 0),
        "and a few are held back": ([*ten(kube("not ready"))[:2], *SPARE], "10%", "drain", 1),
        "a drained node leaves no room": (
            [replace(drained(disks=failed()), name="d"), view(kubernetes=GONE)],
            "1",
            "",
            0,
        ),
        "for a lost one, unless there is": (
            [replace(drained(disks=failed()), name="d"), view(kubernetes=GONE)],
            "2",
            "",
            1,
        ),
        "losing all machines ends the jobs of few": (ten(GONE), "2", "down", 2),
    },
)
def test_machines_and_faults_share_a_limit(nodes: list[NodeView], limit: str, kind: str, actions: int) -> None:
    assert count(nodes, limit, kind) == actions


def test_a_machine_that_somebody_wants_free_goes_before_a_fault_of_the_last_node() -> None:
    nodes = [view("w-0", gpu_xid=XID), view("w-1", kubernetes=CORDONED)]
    assert done(decide(nodes, policy(), NOW)) == [f"drain w-1: {CORDON_REASON}"]


FREES = policy(requeue_after=600, frees_broken=True)
KEEPS = policy(requeue_after=600)


def cordoned(*states: str, ago: float = 600, finding: Finding = CORDONED) -> NodeView:
    return drained(*states, reason=CORDON_REASON, ago=ago, kubernetes=finding)


def broken(ago: float = 600, **findings: Finding) -> NodeView:
    return drained("MIXED", reason=XID_REASON, ago=ago, gpu_xid=XID, **findings)


@table(
    "node, by, kinds",
    {
        "before the deadline": (cordoned("MIXED", ago=599), KEEPS, []),
        "at the deadline": (cordoned("MIXED"), KEEPS, ["requeue"]),
        "a site without a deadline": (cordoned("ALLOCATED", ago=10**6), policy(), []),
        "it is for machines and not for failed checks": (drained("MIXED", ago=9999, disks=failed()), KEEPS, []),
        "it begins when a drained node's machine is cordoned": (
            drained("MIXED", disks=failed(), kubernetes=CORDONED),
            KEEPS,
            ["reason"],
        ),
        "broken hardware, where machines are released": (broken(), FREES, ["requeue"]),
        "a fault that is not the hardware's": (drained("MIXED", ago=600, disks=failed()), FREES, []),
        "broken hardware, where no machine is released": (broken(), KEEPS, []),
        "a cordon does not start it again": (broken(599, kubernetes=CORDONED), FREES, []),
        "but starts it where it did not run": (broken(599, kubernetes=CORDONED), KEEPS, ["reason"]),
    },
)
def test_jobs_are_requeued_after_the_deadline(node: NodeView, by: Policy, kinds: list[str]) -> None:
    actions = done(deciding(node, by=by))
    assert [action.partition(" ")[0] for action in actions] == kinds
    assert all(action == f"reason w-0: {CORDON_REASON}" for action in actions if action.startswith("reason"))


# ---------------------------------------------------------------- what may be another machine now

LOST, NO_DRIVER = "health/gpu-presence [hardware]: lost", "health/gpu-presence [node]: no driver"


@table(
    "reason, started_ago, measured_ago, kind",
    {
        "never measured": (LOST, 30, None, "reason"),
        "measured since": (LOST, 30, 20, "resume"),
        "it is not known when slurmd started": (LOST, None, 20, "resume"),
        "a fault of the node alone": (NO_DRIVER, 30, 40, "resume"),
        "a cordoned machine, measured before": (CORDON_REASON, 30, 40, "reason"),
    },
)
def test_what_may_be_another_machine_now_is_measured_before_it_takes_jobs(
    reason: str, started_ago: float | None, measured_ago: float | None, kind: str
) -> None:
    node = replace(
        drained(reason=reason, gpu_presence=OK, kubernetes=OK),
        started_at=0.0 if started_ago is None else NOW - started_ago,
        measured_at=None if measured_ago is None else NOW - measured_ago,
    )
    by = replace(policy(), measures_new=True)
    check = reason.partition("/")[2].partition(" ")[0]
    (action,) = done(deciding(node, by=by))
    assert action.startswith("reason w-0: health/new-machine [node]: " if kind == "reason" else "resume w-0: ")
    resumed = [f"resume w-0: lifted: health/{check}"]
    assert done(deciding(node)) == resumed, "where no tests of nodes run"
    assert done(deciding(node, by=replace(by, report_only=frozenset({check})))) == resumed, "the check counts no more"
