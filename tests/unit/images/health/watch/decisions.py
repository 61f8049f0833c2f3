"""Nodes with faults, and what is decided about them."""

from __future__ import annotations

from images.health.watch.decide import (
    Decision,
    NodeView,
    Policy,
    decide,
)
from tests.unit.images.health.watch.views import NOW, failed, policy, view

SPARE = [view(f"spare-{number}") for number in range(3)]
"""Well, so that the node under test is not the last one."""


OURS = "health/disks [node]: /jail 97 % used"


def deciding(*nodes: NodeView, by: Policy | None = None) -> Decision:
    return decide([*nodes, *SPARE], by or policy(), NOW)


def done(decision: Decision) -> list[tuple[str, str, str]]:
    return [(action.kind.value, action.node.name, action.reason) for action in decision.actions]


def faults(count: int) -> list[NodeView]:
    return [view(f"w-{number:02}", filesystem=failed("4 s to sync")) for number in range(count)]
