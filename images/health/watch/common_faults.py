"""Faults that a large part of a pool has at once: they have a common cause, and drains do not help against it.

A file system that hangs, a driver that was rolled out, a check that is wrong. Who drains for it takes away the nodes
that would work again with the cause gone, so nothing is drained for it, and what was drained in its first minutes is
resumed: the reports of a pool come within an interval, not at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from images.common.health.contract import Status
from images.common.health.finding import Finding
from images.health.watch.view import NodeView

LEAST_NODES: Final = 3
"""Fewer nodes with the same fault are no sign of anything; the limit holds for them."""
LARGE_PART: Final = 3
"""One of so many nodes of a pool."""
RECENT_SECONDS: Final = 600.0
"""A node that has been drained for longer is not a part of what happens now, and is not resumed for it."""


@dataclass(frozen=True, kw_only=True)
class CommonFault:
    """A check that fails on a large part of a pool."""

    pool: str
    check: str
    failing: int
    of: int
    """Nodes of the pool that have looked, those aside that have been drained for it for long."""
    message: str
    """Of one of them."""

    def __str__(self) -> str:
        """For people."""
        where = f"pool {self.pool}" if self.pool else "the cluster"
        return f"{self.check} fails on {self.failing} of {self.of} nodes of {where} at once: {self.message}"


def counts_here(finding: Finding, now: float) -> bool:
    """Whether it may be one of many: what a person has declared, and a machine that is gone, speak for themselves."""
    return finding.is_fresh(now) and not (finding.declared or finding.lost)


def common_faults(
    nodes: Iterable[NodeView], report_only: frozenset[str], now: float
) -> Mapping[tuple[str, str], CommonFault]:
    """By pool and check."""
    looked: dict[tuple[str, str], int] = defaultdict(int)
    failing: dict[tuple[str, str], list[str]] = defaultdict(list)
    for node in nodes:
        if node.is_asleep:
            continue
        for check, finding in node.findings.items():
            known = finding.result.status is not Status.NOT_CHECKED and counts_here(finding, now)
            if check in report_only or not known or _is_old(node, check, now):
                continue
            looked[node.pool, check] += 1
            if finding.result.status is Status.FAIL:
                failing[node.pool, check].append(finding.result.message)
    return {
        key: CommonFault(pool=key[0], check=key[1], failing=len(messages), of=looked[key], message=messages[0])
        for key, messages in failing.items()
        if len(messages) >= LEAST_NODES and len(messages) * LARGE_PART >= looked[key]
    }


def _is_old(node: NodeView, check: str, now: float) -> bool:
    return node.own is not None and node.own.check == check and not is_recent(node, now)


def is_recent(node: NodeView, now: float) -> bool:
    """Whether its drain is a part of what happens now."""
    return node.reason_at is not None and now - node.reason_at < RECENT_SECONDS
