"""Limits of slurm.conf that are too small for what slurmctld holds.

At a reconfiguration slurmctld recovers its jobs and nodes up to these limits and forgets the rest: pending and running
jobs without a trace, and nodes with the jobs on them, which are queued again (measured with 24.11 and 26.05).
"""

from __future__ import annotations

import math
from typing import Final

from images.common.slurm_conf import setting
from images.controller.configuration import Files
from images.controller.control import Slurmctld

_DEFAULT_MAX_JOBS: Final = "10000"
"""Slurm's own, where MaxJobCount is not set."""


def too_small(slurmctld: Slurmctld, files: Files, before: Files) -> str | None:
    """Why slurmctld must not read these files, or None. It is asked only where a limit becomes smaller."""
    jobs = _lowered("MaxJobCount", files, before, _DEFAULT_MAX_JOBS)
    if jobs is not None and (held := _lines(slurmctld.records_text())) > jobs:
        return (
            f"MaxJobCount={jobs} is too small: slurmctld has {_said(held)} job records and would forget some, also "
            "running ones. Keep it larger, or wait until there are fewer (ended jobs count for MinJobAge)"
        )
    nodes = _lowered("MaxNodeCount", files, before, None)
    if nodes is not None and (held := _lines(slurmctld.nodes_text())) > nodes:
        return (
            f"MaxNodeCount={nodes} is too small: slurmctld has {_said(held)} nodes and would forget some with "
            "their jobs. Set slurm.settings.MaxNodeCount to what it was until nodes have left"
        )
    return None


def _lowered(key: str, files: Files, before: Files, default: str | None) -> int | None:
    """The new value of a limit if it is smaller than the one in force."""
    new, old = (setting(of, key) or default for of in (files, before))
    if new is None or old is None or not (new.isdigit() and old.isdigit()) or int(new) >= int(old):
        return None
    return int(new)


def _lines(text: str | None) -> float:
    """How many records; without an answer, too many for any limit."""
    return math.inf if text is None else len(text.splitlines())


def _said(held: float) -> str:
    return "nobody knows how many" if math.isinf(held) else f"{held:.0f}"
