"""What is decided about: a node and what is known of its health, and faults that many nodes have at once.

Nothing here asks or changes anything.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from images.common.health.contract import Status
from images.common.health.report import Finding
from images.common.health.slurm import Record

KUBERNETES: Final = "kubernetes"
"""The check that the watcher does itself: the machine, as Kubernetes sees it."""

LEAST_NODES: Final = 3
"""Fewer nodes with the same fault are no sign of anything; the limit holds for them."""
LARGE_PART: Final = 3
"""One of so many nodes of a pool."""
RECENT_SECONDS: Final = 600.0
"""A node that has been drained for longer is not a part of what happens now, and is not resumed for it."""


@dataclass(frozen=True, kw_only=True)
class Limit:
    """How many nodes may be drained for checks, or under test, at a time: a number of nodes, or a part of all."""

    number: int
    """Nodes, or per cent of them."""
    percent: bool = False

    @staticmethod
    def parse(text: str) -> Limit:
        """Read `3` or `10%`. Raises ValueError."""
        return Limit(number=int(text.removesuffix("%")), percent=text.endswith("%"))

    def of(self, nodes: int) -> int:
        """How many of this many nodes; of a part that is not 0, at least one."""
        if not self.percent:
            return self.number
        return max(nodes * self.number // 100, 1 if self.number else 0)

    def __str__(self) -> str:
        """As written."""
        return f"{self.number}%" if self.percent else str(self.number)


@dataclass(frozen=True, kw_only=True)
class NodeView(Record):
    """A node as Slurm has it on record, and what is known about its health."""

    findings: Mapping[str, Finding] = field(default_factory=dict)
    measured_at: float | None = None
    """When a test of nodes last ran there; None: none is on record."""

    @property
    def is_unmeasured(self) -> bool:
        """Whether no test of nodes has run on what may be another machine than before."""
        return self.measured_at is None or self.measured_at < self.started_at

    @property
    def takes_jobs(self) -> bool:
        """Whether a user's job could start on it: not where a reservation keeps it for the tests."""
        return not (self.is_closed or self.is_asleep or self.states & {"NOT_RESPONDING", "MAINTENANCE"})

    @property
    def is_declared(self) -> bool:
        """A person wants it free of jobs, and said so."""
        return any(finding.declared and finding.unwanted_since is None for finding in self.findings.values())

    def is_recently_drained(self, now: float) -> bool:
        """Whether its drain is a part of what happens now."""
        return self.reason_at is not None and now - self.reason_at < RECENT_SECONDS


@dataclass(frozen=True, kw_only=True)
class CommonFault:
    """A check that fails on a large part of a pool: a file system that hangs, a driver that was rolled out.

    Drains do not help against it, and take away the nodes that would work again with the cause gone. So nothing is
    drained for it, and what was drained in its first minutes is resumed: the reports of a pool come within an interval,
    not at once.
    """

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
        long_drained_for = node.own.check if node.own is not None and not node.is_recently_drained(now) else None
        for check, finding in node.findings.items():
            known = finding.result.status is not Status.NOT_CHECKED and counts_here(finding, now)
            if not known or check in report_only or check == long_drained_for:
                continue
            looked[node.pool, check] += 1
            if finding.result.status is Status.FAIL:
                failing[node.pool, check].append(finding.result.message)
    return {
        key: CommonFault(pool=key[0], check=key[1], failing=len(messages), of=looked[key], message=messages[0])
        for key, messages in failing.items()
        if len(messages) >= LEAST_NODES and len(messages) * LARGE_PART >= looked[key]
    }
