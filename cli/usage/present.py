"""A report as a table, as JSON and as CSV."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from rich.markup import escape
from rich.table import Table

from cli.text import open_console, printable
from cli.usage.csv_text import csv_text
from cli.usage.totals import Row, Usage

MILLION = 10**6

DIGITS = 6
"""Decimal places of hours for programs: less than a hundredth of a second."""


def iso(time: datetime) -> str:
    """A time in UTC as `2026-11-01T00:00:00Z`."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def as_data(usage: Usage, *, namespace: str) -> dict[str, Any]:
    """The report for scripts. Keys are only ever added to it, never renamed (docs/usage.md)."""
    return {
        "namespace": namespace,
        "start": iso(usage.start),
        "end": iso(usage.end),
        "by": list(usage.by),
        "step": usage.step,
        "rows": [_row(usage.by, row) for row in usage.rows],
        "total": _row((), usage.total),
    }


def _row(by: Sequence[str], row: Row) -> dict[str, Any]:
    return {
        **dict(zip(by, row.group, strict=True)),
        "start": iso(row.start),
        "end": iso(row.end),
        "jobs": row.jobs,
        "cpu_hours": round(row.cpu_hours, DIGITS),
        "gpu_hours": round(row.gpu_hours, DIGITS),
    }


def as_csv(usage: Usage) -> str:
    """The rows of the report, with a heading. There is no row for the total."""
    columns = [*usage.by, "start", "end", "jobs", "cpu_hours", "gpu_hours"]
    return csv_text(columns, (_row(usage.by, row) for row in usage.rows))


def period(start: datetime, end: datetime) -> str:
    """From when to when."""
    return f"{start:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC"


def hours(number: float) -> str:
    """Three digits at least, and no more than matter, so that many columns fit: `12.50`, `384,000`, `1.2M`."""
    digits = 2 if number < 100 else 1 if number < 1000 else 0
    return f"{number:,.{digits}f}" if number < MILLION else f"{number / MILLION:,.1f}M"


def print_table(usage: Usage) -> None:
    """A table for people."""
    console = open_console()
    if not usage.rows:
        console.print(f"no job ran from {period(usage.start, usage.end)}", markup=False)
        return
    table = Table(box=None, pad_edge=False, caption=period(usage.start, usage.end), caption_justify="left")
    names = [*([usage.step.upper()] if usage.step else []), *(name.upper() for name in usage.by)]
    if usage.step:
        table.add_column(usage.step.upper(), no_wrap=True)
    for name in usage.by:
        table.add_column(name.upper(), overflow="fold", min_width=len(name))
    for name in ("JOBS", "CPU HOURS", "CPU %", "GPU HOURS", "GPU %"):
        table.add_column(name, justify="right", no_wrap=True)
    before: datetime | None = None
    for row in usage.rows:
        when = [] if usage.step is None else ["" if row.start == before else f"{row.start:%Y-%m-%d}"]
        before = row.start
        table.add_row(*when, *(escape(printable(name)) for name in row.group), *_numbers(row, usage.total))
    table.add_section()
    table.add_row("[bold]all[/]", *[""] * (len(names) - 1), *_numbers(usage.total, usage.total), style="bold")
    console.print(table)


def _numbers(row: Row, total: Row) -> list[str]:
    return [
        f"{row.jobs:,}",
        hours(row.cpu_hours),
        _percent(row.cpu_hours, total.cpu_hours),
        hours(row.gpu_hours),
        _percent(row.gpu_hours, total.gpu_hours),
    ]


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f}" if whole else "-"
