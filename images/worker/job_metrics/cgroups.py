"""Figures of jobs from their cgroups, which all may read (version 2 only: see images/common/cgroups.py)."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from images.common.steps import user_of
from images.worker.job_metrics.figures import Figures

MOUNT: Final = Path("/sys/fs/cgroup")
_JOB: Final = re.compile(r"job_(\d+)")
_PROC: Final = Path("/proc")


class JobCgroups:
    """Those of one node. Whose a job is, is looked up once."""

    def __init__(self, node: str, mount: Path = MOUNT, proc: Path = _PROC) -> None:
        self._scope = mount / "system.slice" / f"{node}_slurmstepd.scope"
        self._proc = proc
        self._users: dict[str, int] = {}

    def are_there(self) -> bool:
        """Whether jobs of this node have cgroups."""
        return self._scope.is_dir()

    def read(self) -> Mapping[str, Figures]:
        """By the job's number. Raises OSError. A job that ends meanwhile is left out."""
        found = {}
        for directory in sorted(self._scope.iterdir()):
            match = _JOB.fullmatch(directory.name)
            if match:
                with contextlib.suppress(OSError, KeyError, ValueError):
                    found[match[1]] = self._job(match[1], directory)
        self._users = {job: uid for job, uid in self._users.items() if job in found}
        return found

    def _job(self, job: str, group: Path) -> Figures:
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
            uid=self._user(job, group),
        )

    def _user(self, job: str, group: Path) -> int | None:
        """That of the first process that is not root's: slurmstepd's own are."""
        if job not in self._users:
            for path in group.glob("step_*/user/*/cgroup.procs"):
                first = path.read_text(encoding="ascii").partition("\n")[0]
                uid = user_of(int(first), self._proc) if first else None
                if uid:
                    self._users[job] = uid
                    break
        return self._users.get(job)


def _table(path: Path) -> dict[str, int]:
    rows = (line.split() for line in path.read_text(encoding="ascii").splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) == 2}


def _count(cpus: str) -> int:
    """How many CPUs `0-3,8` are."""
    ranges = [part.partition("-") for part in cpus.split(",") if part]
    return sum(int(last or first) - int(first) + 1 for first, _, last in ranges)
