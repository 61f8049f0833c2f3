"""What a job uses of its node, and its text for Prometheus: names and labels of the cgroup_exporter for jobstats."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Of one job on this node. Times in seconds, memory in bytes."""

    user_seconds: float
    system_seconds: float
    cpus: int
    rss: int
    """Memory that belongs to no file."""
    cache: int
    """Memory of files, shared memory among it."""
    shmem: int
    used: int
    total: int
    """The limit; -1: none."""
    failures: int
    """How often the kernel ended something of the job for want of memory."""
    uid: int | None

    @property
    def total_seconds(self) -> float:
        """Both kinds of CPU time."""
        return self.user_seconds + self.system_seconds


_SERIES: Final[Mapping[str, tuple[str, Callable[[Figures], float]]]] = {
    "cpu_user_seconds": ("Cumulative CPU user seconds for jobid", lambda job: job.user_seconds),
    "cpu_system_seconds": ("Cumulative CPU system seconds for jobid", lambda job: job.system_seconds),
    "cpu_total_seconds": ("Cumulative CPU total seconds for jobid", lambda job: job.total_seconds),
    "cpus": ("Number of CPUs in the jobid", lambda job: job.cpus),
    "memory_rss_bytes": ("Memory RSS used in bytes", lambda job: job.rss),
    "memory_cache_bytes": ("Memory cache used in bytes", lambda job: job.cache),
    "memory_shmem_bytes": ("Shared memory used in bytes", lambda job: job.shmem),
    "memory_used_bytes": ("Memory used in bytes", lambda job: job.used),
    "memory_total_bytes": ("Memory total given to jobid in bytes", lambda job: job.total),
    "memory_fail_count": ("Memory fail count", lambda job: job.failures),
    # The cgroup_exporter has nothing but 0 here with version 2 of cgroups, either.
    "memsw_used_bytes": ("Swap used in bytes", lambda _: 0),
    "memsw_total_bytes": ("Swap total given to jobid in bytes", lambda _: 0),
    "memsw_fail_count": ("Swap fail count", lambda _: 0),
}


def text(jobs: Mapping[str, Figures]) -> str:
    """All jobs. `step` and `task` are empty, as jobstats asks for them: a job's figures are those of all its steps."""
    lines: list[str] = []
    for name, (explained, value) in _SERIES.items():
        found = [f'{{jobid="{job}",step="",task=""}} {value(figures):.15g}' for job, figures in jobs.items()]
        lines += _series(name, explained, found)
    uids = [f'{{jobid="{job}"}} {figures.uid}' for job, figures in jobs.items() if figures.uid is not None]
    lines += _series("uid", "Uid number of user running this job", uids)
    return "".join(f"{line}\n" for line in lines)


def _series(name: str, explained: str, found: Sequence[str]) -> list[str]:
    name = f"cgroup_{name}"
    return [f"# HELP {name} {explained}", f"# TYPE {name} gauge", *(f"{name}{line}" for line in found)] if found else []
