"""Nodes for the tests of the watcher."""

from __future__ import annotations

from images.common.health.contract import FaultClass, Result, Status
from images.common.health.finding import Finding
from images.health.watch.decide import Policy
from images.health.watch.limit import Limit
from images.health.watch.view import NodeView

NOW = 1_795_000_000.0
"""Seconds since 1970."""


def failed(message: str = "broken", fault: FaultClass | None = "node") -> Result:
    return Result(status=Status.FAIL, message=message, fault=fault)


OK = Result(status=Status.OK)
WARN = Result(status=Status.WARN, message="not good", fault="node")
UNKNOWN = Result(status=Status.NOT_CHECKED, message="no tool")


def found(result: Result, *, ago: float = 1.0, arrived_ago: float | None = None) -> Finding:
    """A finding that is some seconds old."""
    return Finding(result=result, at=NOW - ago, arrived=None if arrived_ago is None else NOW - arrived_ago)


def view(
    name: str = "w-0", *states: str, reason: str = "", drained_ago: float = 60.0, **findings: Result | Finding
) -> NodeView:
    """A node; idle unless said otherwise. Names of checks with `_` for `-`."""
    return NodeView(
        name=name,
        states=frozenset({*(states or ("IDLE",)), "DYNAMIC_NORM"}),
        reason=reason,
        reason_at=NOW - drained_ago if reason else None,
        findings={
            check.replace("_", "-"): finding if isinstance(finding, Finding) else found(finding)
            for check, finding in findings.items()
        },
    )


def policy(
    max_drained: str = "100",
    *,
    report_only: frozenset[str] = frozenset(),
    requeue_after: float | None = None,
    frees_broken: bool = False,
) -> Policy:
    return Policy(
        max_drained=Limit.parse(max_drained),
        report_only=report_only,
        requeue_after=requeue_after,
        frees_broken=frees_broken,
    )
