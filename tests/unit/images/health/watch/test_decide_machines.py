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
    return Finding(result=failed(message), at=NOW, declared=declared, lost=lost)


CORDONED, GONE = kube("machine m-0 is cordoned", declared=True), kube("machine m-0 is gone", lost=True)
CORDON_REASON, GONE_REASON = (
    "health/kubernetes [node]: machine m-0 is cordoned",
    "health/kubernetes [node]: machine m-0 is gone",
)
UNWANTED = Finding(result=failed("maintenance"), at=NOW, declared=True, unwanted_since=NOW - 60)
DOWN, RESUMED = [f"down w-0: {GONE_REASON}"], ["resume w-0: lifted: health/kubernetes"]
WELL = Finding(result=OK, at=NOW)
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
        "broken hardware, where machines are released": (broken(), FREES, ["requeue"]),
        "a fault that is not the hardware's": (drained("MIXED", ago=600, disks=failed()), FREES, []),
        "broken hardware, where no machine is released": (broken(), KEEPS, []),
    },
)
def test_jobs_are_requeued_after_the_deadline(node: NodeView, by: Policy, kinds: list[str]) -> None:
    assert [action.kind.value for action in deciding(node, by=by).actions] == kinds
