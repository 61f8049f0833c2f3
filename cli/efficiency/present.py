"""A report as a table, as JSON and as CSV; one job as a few lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.markup import escape
from rich.table import Table

from cli.efficiency.advice import advice, amount, clock, unknown
from cli.efficiency.totals import Efficiency, Row
from cli.health.present import open_console, printable
from cli.usage.csv_text import csv_text
from cli.usage.present import DIGITS, hours, iso, period
from images.common.slurm_runs import Run

_MISSING = "-"
_HEADINGS = ("CPU H", "USED", "CPU %", "WASTED", "GIB H", "MEM %")


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
    return {
        **dict(zip(by, row.group, strict=True)),
        "jobs": row.jobs,
        "cpu_hours_asked": round(row.cpu_asked, DIGITS),
        "cpu_hours_measured": round(row.cpu_measured, DIGITS),
        "cpu_hours_used": round(row.cpu_used, DIGITS) if row.cpu_measured else None,
        "cpu_hours_wasted": round(row.cpu_wasted, DIGITS) if row.cpu_measured else None,
        "cpu_percent": _rounded(row.cpu_percent),
        "memory_gib_hours_asked": round(row.memory_asked, DIGITS),
        "memory_gib_hours_measured": round(row.memory_measured, DIGITS),
        "memory_gib_hours_used": round(row.memory_used, DIGITS) if row.memory_measured else None,
        "memory_percent": _rounded(row.memory_percent),
        "memory_gib_largest_job": round(row.largest, DIGITS) if row.memory_measured else None,
        "gpu_hours_asked": round(row.gpu_asked, DIGITS),
        "gpu_hours_used": None,  # Slurm does not record it
    }


def _rounded(percent: float | None) -> float | None:
    return None if percent is None else round(percent, 2)


def as_csv(found: Efficiency) -> str:
    """The rows of the report, with a heading. There is no row for the total."""
    return csv_text([*found.by, *_row((), found.total)], [_row(found.by, row) for row in found.rows])


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
        "cpu_percent": None if used is None else round(100 * used / walltime, 2) if walltime else None,
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


def print_job(job: Run) -> None:
    """A few lines about one job."""
    console = open_console()
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    why = unknown(job)
    for name, value in _lines(job):
        table.add_row(name, escape(printable(value)))
    if why:
        table.add_row("unknown", escape(why))
    for line in advice(job):
        table.add_row("advice", escape(line), style="bold")
    console.print(table)


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
