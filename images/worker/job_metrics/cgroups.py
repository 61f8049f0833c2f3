"""Figures of jobs from their cgroups, which all may read (version 2 only: see images/common/cgroups.py)."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Final

from images.common.steps import PROC, user_of
from images.worker.job_metrics.figures import Figures

MOUNT: Final = Path("/sys/fs/cgroup")
_JOB: Final = re.compile(r"job_(\d+)")


def read_jobs(node: str, mount: Path = MOUNT, proc: Path = PROC) -> dict[str, Figures]:
    """Those of a node by the job's number; none where jobs have no cgroups. A job that ends meanwhile is left out."""
    found = {}
    for directory in sorted(mount.glob(f"system.slice/{node}_slurmstepd.scope/job_*")):
        match = _JOB.fullmatch(directory.name)
        if match:
            with contextlib.suppress(OSError, KeyError, ValueError):
                found[match[1]] = _figures(directory, proc)
    return found


def _figures(group: Path, proc: Path) -> Figures:
    cpu, memory, events = (_table(group / name) for name in ("cpu.stat", "memory.stat", "memory.events"))
    limit = (group / "memory.max").read_text(encoding="ascii").strip()
    return Figures(
        user_seconds=cpu["user_usec"] / 1e6,
        system_seconds=cpu["system_usec"] / 1e6,
        cpus=_count((group / "cpuset.cpus.effective").read_text(encoding="ascii").strip()),
        rss=memory["anon"] + memory.get("swapcached", 0),
        cache=memory["file"],
        shmem=memory["shmem"],
        used=int((group / "memory.current").read_text(encoding="ascii")),
        total=-1 if limit == "max" else int(limit),
        failures=events["oom"],
        uid=_user(group, proc),
    )


def _user(group: Path, proc: Path) -> int | None:
    """That of the first process that is not root's: slurmstepd's own are. None while the job has no task here."""
    for path in group.glob("step_*/user/*/cgroup.procs"):
        first = path.read_text(encoding="ascii").partition("\n")[0]
        uid = user_of(int(first), proc) if first else None
        if uid:
            return uid
    return None


def _table(path: Path) -> dict[str, int]:
    rows = (line.split() for line in path.read_text(encoding="ascii").splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) == 2}


def _count(cpus: str) -> int:
    """How many CPUs `0-3,8` are."""
    ranges = [part.partition("-") for part in cpus.split(",") if part]
    return sum(int(last or first) - int(first) + 1 for first, _, last in ranges)
