"""What jobs asked for, used and left idle, by account, user or job."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from cli.usage.report import DIGITS, hours, iso, percent, period, print_rows
from images.common.slurm_runs import Run

DIMENSIONS = ("account", "user", "job")

GIB = 2**30

_HEADINGS = ("JOBS", "CPU H", "USED", "CPU %", "WASTED", "GIB H", "MEM %", "GPU H")


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
        if job.memory is None:
            return
        self.memory_asked += job.memory / GIB * hours
        if job.memory_used is not None:
            self.memory_measured += job.memory / GIB * hours
            self.memory_used += job.memory_used / GIB * hours


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


def as_data(found: Efficiency, *, namespace: str) -> dict[str, Any]:
    """The report for scripts. CHANGELOG.md names keys that go (docs/usage.md)."""
    return {
        "namespace": namespace,
        "start": iso(found.start),
        "end": iso(found.end),
        "by": list(found.by),
        "rows": [_row(found.by, row) for row in found.rows],
        "total": _row((), found.total),
    }


def _row(by: Sequence[str], row: Row) -> dict[str, Any]:
    numbers = {
        "cpu_hours_asked": row.cpu_asked,
        "cpu_hours_measured": row.cpu_measured,
        "cpu_hours_used": row.cpu_used if row.cpu_measured else None,
        "cpu_hours_wasted": row.cpu_wasted if row.cpu_measured else None,
        "cpu_percent": row.cpu_percent,
        "memory_gib_hours_asked": row.memory_asked,
        "memory_gib_hours_measured": row.memory_measured,
        "memory_gib_hours_used": row.memory_used if row.memory_measured else None,
        "memory_percent": row.memory_percent,
        "gpu_hours_asked": row.gpu_asked,
    }
    rounded = {
        name: None if number is None else round(number, 2 if name.endswith("percent") else DIGITS)
        for name, number in numbers.items()
    }
    return {**dict(zip(by, row.group, strict=True)), "jobs": row.jobs, **rounded}


def print_table(found: Efficiency) -> None:
    """A table for people."""
    rows = [(row.group, _cells(row)) for row in found.rows]
    print_rows(found.by, _HEADINGS, rows, _cells(found.total), period(found.start, found.end))
    missing = found.total.cpu_asked - found.total.cpu_measured
    if hours(missing) != hours(0):
        print(
            f"{hours(missing)} of the CPU hours were not measured (jobs that still run, or were too short or lost): "
            "they count in CPU H only"
        )


def _cells(row: Row) -> list[str]:
    measured = row.cpu_measured > 0
    return [
        f"{row.jobs:,}",
        hours(row.cpu_asked),
        hours(row.cpu_used) if measured else "-",
        percent(row.cpu_used, row.cpu_measured),
        hours(row.cpu_wasted) if measured else "-",
        hours(row.memory_asked),
        percent(row.memory_used, row.memory_measured),
        hours(row.gpu_asked),
    ]
