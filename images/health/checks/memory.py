"""memory: what jobs have left behind, which the next job would miss: anonymous memory, shared memory, huge pages.

It is counted by the cgroup of slurmd's container, in which jobs run. While a job has the node nobody can tell what is
left behind, so the last finding stands.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from images.common.command import Runner
from images.health.contract import Check, FaultClass, Node, Result, Status, Thresholds
from images.health.state import lasts, recall, remember
from images.health.verdict import UnknownError, fail, not_checked, ok, or_not_checked, warn

NAME: Final = "memory"

WARN_PERCENT: Final = 2.0
"""Of the container's memory. So much is kept back from jobs (slurm/sizing.py, LARGE_WORKER_SHARE)."""
FAIL_PERCENT: Final = 5.0
IGNORE_MIB: Final = 256.0
"""Less is never spoken of: slurmd has 9 MiB, these checks 20 MiB, a slurmstepd that is just ending 13 MiB."""

PERSISTS_SECONDS: Final = 20.0
"""Less than one interval, so: what is there in two runs in a row. A job may have begun, or be ending, after somebody
looked for jobs; a terabyte takes the kernel seconds to free."""

_CGROUP: Final = "sys/fs/cgroup"
_MIB: Final = 2**20
_UNLIMITED: Final = 2**62
"""Version 1 writes the largest number of pages for "no limit"."""


@dataclass(frozen=True, kw_only=True)
class Used:
    """Bytes in use."""

    anonymous: int
    shared: int
    """tmpfs (/dev/shm) and System V segments."""
    huge: int
    limit: int
    """Of the container; huge pages do not count against it."""

    @property
    def left(self) -> int:
        """What a job would miss."""
        return self.anonymous + self.shared + self.huge


def read_used(root: Path) -> Used:
    """Ask the kernel, version 2 of cgroups or 1. Raises UnknownError.

    Without a limit this is no container's cgroup but a whole machine's, with what others have on it.
    """
    cgroup = root / _CGROUP
    if (cgroup / "memory.stat").exists():
        stat, keys, limit = _table(cgroup / "memory.stat"), ("anon", "shmem"), _text(cgroup / "memory.max")
        huge = cgroup.glob("hugetlb.*.current")
    else:
        stat, keys = _table(cgroup / "memory/memory.stat"), ("total_rss", "total_shmem")
        limit = _text(cgroup / "memory/memory.limit_in_bytes")
        huge = (cgroup / "hugetlb").glob("hugetlb.*B.usage_in_bytes")
    pages = [path for path in huge if not path.name.split(".")[2].startswith("rsvd")]
    try:
        if limit == "max" or int(limit) >= _UNLIMITED:
            raise UnknownError("the container has no memory limit, so its memory cannot be told from others'")
        anonymous, shared = (int(stat[key]) for key in keys)
        used = Used(anonymous=anonymous, shared=shared, huge=sum(int(_text(path)) for path in pages), limit=int(limit))
    except (KeyError, ValueError):
        raise UnknownError("what the kernel tells about the container's memory is not as expected") from None
    if used.limit <= 0 or min(used.anonymous, used.shared, used.huge) < 0:
        raise UnknownError("what the kernel tells about the container's memory makes no sense")
    return used


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError as error:
        raise UnknownError(f"{path}: {error.strerror}") from None


def _table(path: Path) -> dict[str, str]:
    return dict(re.findall(r"(?m)^(\w+) (\d+)$", _text(path)))


def judge(node: Node, used: Used, thresholds: Thresholds, clock: Callable[[], float]) -> Result:
    """Without jobs."""
    share = 100 * used.left / used.limit
    warning = thresholds.get(NAME, "warn_percent", WARN_PERCENT)
    failure = thresholds.get(NAME, "fail_percent", FAIL_PERCENT)
    ignored = used.left < thresholds.get(NAME, "ignore_mib", IGNORE_MIB) * _MIB
    lasted = lasts(node, NAME, now=share >= failure and not ignored, clock=clock)
    if ignored or share < min(warning, failure):
        return ok(**_values(used))
    parts = {"anonymous": used.anonymous, "/dev/shm and other shared": used.shared, "huge pages": used.huge}
    figures = ", ".join(f"{name} {size // _MIB} MiB" for name, size in parts.items() if size >= _MIB)
    failed = share >= failure and lasted >= thresholds.get(NAME, "persists_seconds", PERSISTS_SECONDS)
    message = f"{share:.1f} % in use without a job, {failure:g} % allowed: {figures}"
    return (fail if failed else warn)("user", message, _values(used))


def _values(used: Used) -> dict[str, float]:
    return {
        "memory_anonymous_bytes": float(used.anonymous),
        "memory_shared_bytes": float(used.shared),
        "memory_huge_pages_bytes": float(used.huge),
    }


@or_not_checked
def run(node: Node, _runner: Runner, thresholds: Thresholds, *, clock: Callable[[], float] = time.monotonic) -> Result:
    """Look at it, if no job runs."""
    used = read_used(node.root)
    if node.other_jobs or node.job:
        lasts(node, NAME, now=False, clock=clock)
        return _last_finding(node, used)
    result = judge(node, used, thresholds, clock)
    remember(node, NAME, {"status": result.status.value, "message": result.message})
    return result


def _last_finding(node: Node, used: Used) -> Result:
    """The last finding without jobs. Neither better nor worse: a drain is neither set nor lifted for what a job has."""
    last = recall(node, NAME)
    try:
        known, message = Status(last["status"]), str(last["message"])
    except (KeyError, ValueError):
        return not_checked("jobs have run here since the pod's start")
    fault: FaultClass | None = None if known is Status.OK else "user"
    return Result(status=known, message=message, fault=fault, values=_values(used))


CHECK: Final = Check(
    name=NAME,
    summary="memory that jobs have left behind: anonymous, shared, huge pages",
    run=run,
)
