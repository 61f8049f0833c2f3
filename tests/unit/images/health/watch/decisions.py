"""Nodes with faults, and what is decided about them."""

from __future__ import annotations

from typing import Any

from images.common.health.contract import Result
from images.common.health.finding import Finding
from images.health.watch.decide import Decision, Policy, decide
from images.health.watch.view import NodeView
from tests.unit.images.health.watch.views import NOW, failed, policy, view

SPARE = [view(f"spare-{number}") for number in range(3)]
"""Well, so that the node under test is not the last one."""

OURS = "health/disks [node]: /jail 97 % used"


def deciding(*nodes: NodeView, by: Policy | None = None) -> Decision:
    return decide([*nodes, *SPARE], by or policy(), NOW)


def done(decision: Decision) -> list[str]:
    """What is done, and to whom."""
    return [f"{action.kind.value} {action.node.name}: {action.reason}" for action in decision.actions]


def count(nodes: list[NodeView], limit: str, kind: str = "") -> int:
    """To how many of these nodes something (of this kind) is done."""
    return sum(one.startswith(kind) for one in done(decide(nodes, policy(limit), NOW)))


def drained(*states: str, reason: str = OURS, ago: float = 60.0, **findings: Result | Finding) -> NodeView:
    """A node that we have drained, for its disks unless said otherwise."""
    return view("w-0", *(states or ("IDLE",)), "DRAIN", reason=reason, drained_ago=ago, **findings)


def faults(count: int) -> list[NodeView]:
    """Each has another one: what many have at once drains nothing."""
    failures: list[dict[str, Any]] = [{f"check_{number}": failed("4 s to sync")} for number in range(count)]
    return [view(f"w-{number:02}", **failure) for number, failure in enumerate(failures)]
