"""What sacct prints for runs of the days that the tests are about."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from images.common.slurm_runs import DELIMITER

NOW = datetime(2026, 11, 21, 18, 30, tzinfo=UTC)  # a Saturday
START = datetime(2026, 11, 20, tzinfo=UTC)


def epoch(hour: float) -> int:
    """Seconds since 1970 at an hour after START."""
    return int((START + timedelta(hours=hour)).timestamp())


def line(job: str, who: tuple[str, str], start: float, end: float, tres: str, **changes: Any) -> str:
    """What sacct prints for one run of a user in an account, between two hours after START."""
    elapsed = changes.get("elapsed", round((end - start) * 3600))
    cpus = changes.get("cpus", 1)
    user, account = who
    values = (job, job, user, "COMPLETED", epoch(start), epoch(end), elapsed, tres, cpus, 1, "00:00:00", "", account)
    return DELIMITER.join(map(str, values))
