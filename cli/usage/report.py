"""From runs of jobs to hours by account and user: as a table, as JSON and as CSV."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from rich.markup import escape
from rich.table import Table

from cli.text import open_console, printable
from images.common.slurm_runs import Run

DIMENSIONS = ("account", "user")

MILLION = 10**6

DIGITS = 6
"""Decimal places of hours for programs: less than a hundredth of a second."""

_FORMULA = re.compile(r"(^|;)(?=[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20])")
"""Where a spreadsheet would begin a formula, also in full width, and where it divides at semicolons. From OWASP, "CSV
Injection"."""


@dataclass(kw_only=True)
class Row:
    """What one account or user, or one user in one account, used."""

    group: tuple[str, ...]
    numbers: set[str] = field(default_factory=set)
    cpu_hours: float = 0.0
    gpu_hours: float = 0.0

    @property
    def jobs(self) -> int:
        """Jobs that ran. One that was requeued is one."""
        return len(self.numbers)

    def add(self, run: Run) -> None:
        """Count a run."""
        self.numbers.add(run.number)
        self.cpu_hours += run.seconds * run.cpus / 3600
        self.gpu_hours += run.seconds * run.gpus / 3600


@dataclass(frozen=True, kw_only=True)
class Usage:
    """A whole report."""

    start: datetime
    end: datetime
    by: tuple[str, ...]
    rows: tuple[Row, ...]
    """The largest use first."""
    total: Row

    def data(self, row: Row, by: Sequence[str] = ()) -> dict[str, Any]:
        """A row for scripts; each says for itself of which time it is, as those of several reports are put together."""
        return {
            **dict(zip(by, row.group, strict=True)),
            "start": iso(self.start),
            "end": iso(self.end),
            "jobs": row.jobs,
            "cpu_hours": round(row.cpu_hours, DIGITS),
            "gpu_hours": round(row.gpu_hours, DIGITS),
        }


def summarize(runs: Iterable[Run], *, start: datetime, end: datetime, by: Sequence[str]) -> Usage:
    """Hours of all runs, which sacct has cut to the report's time."""
    rows: dict[tuple[str, ...], Row] = {}
    total = Row(group=())
    for run in runs:
        group = tuple(str(getattr(run, name)) for name in by)
        total.add(run)
        rows.setdefault(group, Row(group=group)).add(run)
    order = sorted(rows.values(), key=lambda row: (-row.cpu_hours, row.group))
    return Usage(start=start, end=end, by=tuple(by), rows=tuple(order), total=total)


def iso(time: datetime) -> str:
    """A time in UTC as `2026-11-01T00:00:00Z`."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def as_data(usage: Usage, *, namespace: str) -> dict[str, Any]:
    """The report for scripts. CHANGELOG.md names keys that go (docs/usage.md)."""
    return {
        "namespace": namespace,
        "start": iso(usage.start),
        "end": iso(usage.end),
        "by": list(usage.by),
        "rows": [usage.data(row, usage.by) for row in usage.rows],
        "total": usage.data(usage.total),
    }


def as_csv(usage: Usage) -> str:
    """The rows of the report, with a heading, and none for the total. A name that is a formula gets a quote."""
    text = io.StringIO()
    writer = csv.DictWriter(text, [*usage.by, *usage.data(usage.total)], lineterminator="\n")
    writer.writeheader()
    for row in usage.rows:
        names = {name: printable(_FORMULA.sub(r"\1'", said)) for name, said in zip(usage.by, row.group, strict=True)}
        writer.writerow({**usage.data(row, usage.by), **names})
    return text.getvalue()


def period(start: datetime, end: datetime) -> str:
    """From when to when."""
    return f"{start:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC"


def hours(number: float) -> str:
    """Three digits at least, and no more than matter, so that many columns fit: `12.50`, `384,000`, `1.2M`."""
    digits = 2 if number < 100 else 1 if number < 1000 else 0
    return f"{number:,.{digits}f}" if number < MILLION else f"{number / MILLION:,.1f}M"


def print_table(usage: Usage) -> None:
    """A table for people."""

    def cells(row: Row) -> list[str]:
        total = usage.total
        cpus, gpus = percent(row.cpu_hours, total.cpu_hours), percent(row.gpu_hours, total.gpu_hours)
        return [f"{row.jobs:,}", hours(row.cpu_hours), cpus, hours(row.gpu_hours), gpus]

    headings = ("JOBS", "CPU HOURS", "CPU %", "GPU HOURS", "GPU %")
    rows = [(row.group, cells(row)) for row in usage.rows]
    print_rows(usage.by, headings, rows, cells(usage.total), period(usage.start, usage.end))


def print_rows(
    by: Sequence[str],
    headings: Sequence[str],
    rows: Sequence[tuple[Sequence[str], Sequence[str]]],
    total: Sequence[str],
    when: str,
) -> None:
    """A table of groups with their figures, and the sum of all."""
    console = open_console()
    if not rows:
        console.print(f"no job ran from {when}", markup=False)
        return
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), caption=when, caption_justify="left")
    for name in by:
        table.add_column(name.upper(), overflow="fold", min_width=len(name))
    for name in headings:
        table.add_column(name, justify="right", no_wrap=True)
    for group, cells in rows:
        table.add_row(*(escape(printable(name)) for name in group), *cells)
    table.add_section()
    table.add_row("all", *[""] * (len(by) - 1), *total, style="bold")
    console.print(table)


def percent(part: float, whole: float) -> str:
    """`12.5`, and `-` of nothing."""
    return f"{100 * part / whole:.1f}" if whole else "-"
