"""What jobs asked for, used and left idle: sums by account and user, and one job with advice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import ceil
from typing import Any

from rich.markup import escape
from rich.table import Table

from cli.text import open_console, printable
from cli.usage.report import DIGITS, csv_text, hours, iso, period
from images.common.slurm_runs import Run

DIMENSIONS = ("account", "user", "job")

MIB, GIB = 2**20, 2**30

SETTLED = 300
"""Seconds that a job must have run before it is advised: ten looks at its memory, as Slurm looks by default."""

_SPARE = 2
"""What is proposed, as a multiple of what was seen: between two looks memory may have been higher."""

_MISSING = "-"
_HEADINGS = ("CPU H", "USED", "CPU %", "WASTED", "GIB H", "MEM %")

_NO_LOOK = (
    "its memory was never looked at: it, or a long step of it, was shorter than the time between two looks; "
    "`sbatch --acctg-freq=task=1` looks each second"
)
_NOTHING = (
    "not measured: it was ended before Slurm's first look (every 30 seconds by default), its node was lost, or "
    "JobAcctGatherType is none"
)


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
        if job.memory is None:
            return
        self.memory_asked += job.memory / GIB * hours
        if job.memory_used is not None:
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
        "memory_gib_largest_job": row.largest if row.memory_measured else None,
        "gpu_hours_asked": row.gpu_asked,
        "gpu_hours_used": None,  # Slurm does not record it
    }
    rounded = {
        name: None if number is None else round(number, 2 if name.endswith("percent") else DIGITS)
        for name, number in numbers.items()
    }
    return {**dict(zip(by, row.group, strict=True)), "jobs": row.jobs, **rounded}


def as_csv(found: Efficiency) -> str:
    """The rows of the report, with a heading. There is no row for the total."""
    return csv_text([*found.by, *_row((), found.total)], [_row(found.by, row) for row in found.rows])


def print_table(found: Efficiency) -> None:
    """A table for people."""
    console = open_console()
    when = period(found.start, found.end)
    if not found.rows:
        console.print(f"no job ran from {when}", markup=False)
        return
    gpus = found.total.gpu_asked > 0
    counted = "job" not in found.by
    headings = [*(["JOBS"] if counted else []), *_HEADINGS, *(["GPU H", "GPU %"] if gpus else [])]
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
        *([hours(row.gpu_asked), _MISSING] if gpus else []),
    ]


def _percent(percent: float | None) -> str:
    return _MISSING if percent is None else f"{percent:.1f}"


def job_as_data(job: Run) -> dict[str, Any]:
    """One job for scripts. Keys are only ever added."""
    used, memory = job.cpu_seconds, job.memory_used
    walltime = job.cpus * job.seconds
    return {
        "job": job.job,
        "user": job.user,
        "account": job.account,
        "state": job.state,
        "start": None if job.start is None else iso(datetime.fromtimestamp(job.start, UTC)),
        "end": None if job.end is None else iso(datetime.fromtimestamp(job.end, UTC)),
        "elapsed_seconds": job.seconds,
        "nodes": job.nodes,
        "cpus": job.cpus,
        "gpus": job.gpus,
        "cpu_seconds_used": None if used is None else round(used, 3),
        "cpu_percent": round(100 * used / walltime, 2) if used is not None and walltime else None,
        "memory_bytes_asked": job.memory,
        "memory_bytes_used": memory,
        "memory_percent": round(100 * memory / job.memory, 2) if memory is not None and job.memory else None,
        "unknown": unknown(job),
        "advice": advice(job),
    }


def jobs_as_csv(jobs: Iterable[Run]) -> str:
    """Jobs, with a heading."""
    rows = [{**job_as_data(job), "advice": "; ".join(advice(job))} for job in jobs]
    return csv_text(list(rows[0]), rows)


def print_job(job: Run) -> None:
    """A few lines about one job."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in _lines(job):
        table.add_row(name, escape(printable(value)))
    if why := unknown(job):
        table.add_row("unknown", escape(why))
    for line in advice(job):
        table.add_row("advice", escape(line), style="bold")
    open_console().print(table)


def _lines(job: Run) -> list[tuple[str, str]]:
    lines = [("job", f"{job.job} of {job.user}, account {job.account}"), ("state", job.state)]
    if job.start is None:
        return lines
    used, memory, walltime = job.cpu_seconds, job.memory_used, job.cpus * job.seconds
    cpu = "unknown" if used is None or not walltime else f"{clock(used)}, {100 * used / walltime:.1f} %"
    given = "no limit" if job.memory is None else amount(job.memory)
    seen = "unknown" if memory is None else amount(memory)
    part = f", {100 * memory / job.memory:.1f} %" if memory is not None and job.memory else ""
    lines += [
        ("nodes", f"{job.nodes}"),
        ("elapsed", clock(job.seconds)),
        ("CPU", f"{cpu} of {clock(walltime)} ({job.cpus} x {clock(job.seconds)})"),
        ("memory", f"{seen}{part} of {given}"),
    ]
    return [*lines, ("GPU", f"{job.gpus}; what they did is not recorded")] if job.gpus else lines


def amount(size: float) -> str:
    """Bytes for people."""
    return f"{size / GIB:,.2f} GiB" if size >= GIB else f"{size / MIB:,.1f} MiB"


def clock(seconds: float) -> str:
    """Time as Slurm writes it."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return (f"{days}-" if days else "") + f"{hours:02}:{minutes:02}:{rest:02}"


def unknown(job: Run) -> str:
    """Why figures of a job are missing; empty if none is."""
    if job.start is None:
        return "it has not run"
    if job.end is None:
        return "still running: what it uses is known when it has ended"
    if not job.seconds:
        return "it ran for less than a second, which is too short to measure"
    if job.cpu_seconds is None:
        return _NOTHING
    return _NO_LOOK if job.memory_used is None else ""


def advice(job: Run) -> list[str]:
    """What to ask for next time. Nothing for short jobs, nor where nothing is wrong."""
    if job.state.startswith("OUT_OF_MEMORY"):
        return [f"it was ended because {amount(job.memory or 0)} of memory were not enough: ask for more"]
    return [] if job.seconds < SETTLED else [*_idle_cpus(job), *_idle_memory(job)]


def _idle_cpus(job: Run) -> list[str]:
    if job.cpu_seconds is None or job.cpus < 2 or job.cpu_seconds > job.cpus * job.seconds / 2:
        return []
    busy = job.cpu_seconds / job.seconds
    enough = max(ceil(busy), 1)
    asked = f"asked for {job.cpus} CPUs, {busy:.1f} were busy on average"
    return [f"{asked}: {enough} would do, unless it needs more for a part of its time"]


def _idle_memory(job: Run) -> list[str]:
    if job.memory is None or job.memory_used is None:
        return []
    asked = f"asked for {amount(job.memory)} of memory, used {amount(job.memory_used)}"
    unit, letter = (GIB, "G") if job.memory_used * _SPARE > GIB else (100 * MIB, "00M")
    enough = max(ceil(job.memory_used * _SPARE / unit), 1)
    if enough * unit > 0.75 * job.memory:
        return []
    if job.nodes > 1:  # --mem is for each node, and what each of them had is not recorded
        return [f"{asked}, on {job.nodes} nodes together: much less would do"]
    return [f"{asked}: --mem={enough}{letter} would do"]
