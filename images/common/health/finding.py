"""What a check says about a node, and how long that holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from images.common.health.contract import Result, Status

SKEW_SECONDS: Final = 5.0
"""How far the clock of a node may be from slurmctld's before its times are not compared with slurmctld's."""

STALE_SECONDS: Final = 660.0
"""A node with something to complain of reports every 5 minutes. After two of those and a minute nobody knows."""
WELL_STALE_SECONDS: Final = 4020.0
"""The same for one that is well, which reports every 27 to 33 minutes (periodic.py)."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What a check says about a node."""

    result: Result
    at: float
    """When it looked, in seconds since 1970, by its own clock."""
    arrived: float | None = None
    """When the watcher saw this come, by slurmctld's clock; None: it was there when the watcher started."""
    declared: bool = False
    """Somebody wants the node free of jobs and said so. No limit holds that back, unless it is a condition that says so
    (`unwanted_since`): programs set these, and may set them on all machines at once."""
    lost: bool = False
    """The machine is gone: its jobs are to start elsewhere now."""
    unwanted_since: float | None = None
    """Since when a condition that the site has named (maintenance) wants the machine away, in seconds since 1970; None:
    none does."""

    def is_fresh(self, now: float) -> bool:
        """Whether it says something about now. A node whose clock is wrong is believed by when its report came."""
        own = self.at if self.at <= now + SKEW_SECONDS else float("-inf")
        limit = WELL_STALE_SECONDS if self.result.status is Status.OK else STALE_SECONDS
        return now - max(own, float("-inf") if self.arrived is None else self.arrived) <= limit

    def clears(self, drained_at: float | None, now: float) -> bool:
        """Whether it says that jobs can run, having looked after the drain: a warning would not have drained either.

        `arrived` says nothing about that: what comes after a drain may have been found before it.
        """
        if drained_at is None or self.result.status not in {Status.OK, Status.WARN} or not self.is_fresh(now):
            return False
        return drained_at + SKEW_SECONDS < self.at <= now + SKEW_SECONDS
