"""What jobs asked for, used and left idle, by account, user or job."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from rich.markup import escape
from rich.table import Table

from cli.text import open_console, printable
from cli.usage.report import DIGITS, hours, iso, period
from images.common.slurm_runs import Run

DIMENSIONS = ("account", "user", "job")

GIB = 2**30

_MISSING = "-"
_HEADINGS = ("CPU H", "USED", "CPU %", "WASTED", "GIB H", "MEM %")


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
    """The report for scripts. Keys are only ever added to it, never renamed (docs/usage.md)."""
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
    console = open_console()
    when = period(found.start, found.end)
    if not found.rows:
        console.print(f"no job ran from {when}", markup=False)
        return
    gpus = found.total.gpu_asked > 0
    counted = "job" not in found.by
    headings = [*(["JOBS"] if counted else []), *_HEADINGS, *(["GPU H"] if gpus else [])]
    # With all its columns the table is as wide as a terminal only if they stand close together.
    close = len(found.by) + len(headings) > 9
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0) if close else (0, 1))
    for name in found.by:
        table.add_column(name.upper(), overflow="fold", min_width=len(name))
    for name in headings:
        table.add_column(name, justify="right", no_wrap=True)
    for row in found.rows:
        table.add_row(*(escape(printable(name)) for name in row.group), *_cells(row, counted=counted, gpus=gpus))
    table.add_section()
    table.add_row("all", *[""] * (len(found.by) - 1), *_cells(found.total, counted=counted, gpus=gpus), style="bold")
    console.print(table)
    console.print(when, style="dim italic")
    missing = found.total.cpu_asked - found.total.cpu_measured
    if hours(missing) != hours(0):
        console.print(
            f"{hours(missing)} of the CPU hours were not measured (jobs that still run, or were too short or lost): "
            "they count in CPU H only",
            markup=False,
        )


def _cells(row: Row, *, counted: bool, gpus: bool) -> list[str]:
    measured = row.cpu_percent is not None
    return [
        *([f"{row.jobs:,}"] if counted else []),
        hours(row.cpu_asked),
        hours(row.cpu_used) if measured else _MISSING,
        _percent(row.cpu_percent),
        hours(row.cpu_wasted) if measured else _MISSING,
        hours(row.memory_asked),
        _percent(row.memory_percent),
        *([hours(row.gpu_asked)] if gpus else []),
    ]


def _percent(percent: float | None) -> str:
    return _MISSING if percent is None else f"{percent:.1f}"
