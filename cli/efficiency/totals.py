"""From jobs to what accounts and users asked for, used and left idle."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from images.common.slurm_runs import Run

DIMENSIONS = ("account", "user", "job")

GIB = 2**30


@dataclass(kw_only=True)
class Row:
    """What one group asked for and used. Asked are all its jobs; measured and used are those that Slurm measured."""

    group: tuple[str, ...]
    numbers: set[str] = field(default_factory=set)
    cpu_asked: float = 0.0
    """CPU hours, as all that follow until GPUs."""
    cpu_measured: float = 0.0
    cpu_used: float = 0.0
    cpu_wasted: float = 0.0
    memory_asked: float = 0.0
    """GiB hours, as all that follow until GPUs."""
    memory_measured: float = 0.0
    memory_used: float = 0.0
    """Of each job its most, for all of its time."""
    largest: float = 0.0
    """GiB of the job that had the most."""
    gpu_asked: float = 0.0
    """GPU hours. What was used of them, nothing here knows."""

    @property
    def jobs(self) -> int:
        """Jobs that ran. One that was requeued is one."""
        return len(self.numbers)

    @property
    def cpu_percent(self) -> float | None:
        """Of the CPU hours of measured jobs. It may be above 100 where jobs are not kept to their CPUs."""
        return 100 * self.cpu_used / self.cpu_measured if self.cpu_measured else None

    @property
    def memory_percent(self) -> float | None:
        """Of the GiB hours of measured jobs."""
        return 100 * self.memory_used / self.memory_measured if self.memory_measured else None

    def add(self, job: Run, share: float) -> None:
        """Count the part of a run that counts."""
        self.numbers.add(job.number)
        hours = job.seconds * share / 3600
        self.cpu_asked += job.cpus * hours
        self.gpu_asked += job.gpus * hours
        if job.cpu_seconds is not None:
            used = job.cpu_seconds * share / 3600
            self.cpu_measured += job.cpus * hours
            self.cpu_used += used
            # Job by job: one that takes more than its share makes no good for the CPUs that another left idle.
            self.cpu_wasted += max(job.cpus * hours - used, 0.0)
        if job.memory is not None:
            self.memory_asked += job.memory / GIB * hours
        if job.memory is not None and job.memory_used is not None:
            self.memory_measured += job.memory / GIB * hours
            self.memory_used += job.memory_used / GIB * hours
            self.largest = max(self.largest, job.memory_used / GIB)


@dataclass(frozen=True, kw_only=True)
class Efficiency:
    """A whole report."""

    start: datetime
    end: datetime
    by: tuple[str, ...]
    rows: tuple[Row, ...]
    """What wasted most first."""
    total: Row


def summarize(jobs: Iterable[Run], *, start: datetime, end: datetime, now: datetime, by: Sequence[str]) -> Efficiency:
    """All runs between two times. What a run used is spread evenly over its time, as no record says when it was."""
    rows: dict[tuple[str, ...], Row] = {}
    total = Row(group=())
    for job in jobs:
        share = _share(job, start, end, now)
        if share == 0 or job.seconds == 0 or job.cpus == 0:
            continue
        group = tuple(str(getattr(job, name)) for name in by)
        rows.setdefault(group, Row(group=group)).add(job, share)
        total.add(job, share)
    order = sorted(rows.values(), key=lambda row: (-row.cpu_wasted, -row.cpu_asked, row.group))
    return Efficiency(start=start, end=end, by=tuple(by), rows=tuple(order), total=total)


def _share(job: Run, start: datetime, end: datetime, now: datetime) -> float:
    """Which part of a run lies between the times."""
    if job.start is None:
        return 0.0
    until = now.timestamp() if job.end is None else job.end
    inside = min(until, end.timestamp()) - max(job.start, start.timestamp())
    return max(inside, 0.0) / (until - job.start) if until > job.start else 0.0
