"""A node, and what is known about its health: what is decided about.

Nothing here asks or changes anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from images.common.health.finding import Finding
from images.common.health.slurm import Record


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
