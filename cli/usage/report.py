"""From runs of jobs to hours by account, user and time: as a table, as JSON and as CSV."""

from __future__ import annotations

import csv
import io
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from rich.markup import escape
from rich.table import Table

from cli.text import open_console, printable
from cli.usage.times import intervals
from images.common.slurm_runs import Run

DIMENSIONS = ("account", "user")

MILLION = 10**6

DIGITS = 6
"""Decimal places of hours for programs: less than a hundredth of a second."""

_FORMULA = re.compile(r"(?![+-]\d+(\.\d+)?\Z)[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")
"""How a text begins that is a formula to a spreadsheet, also in full width; a number is none. From OWASP, "CSV
Injection"."""


@dataclass(kw_only=True)
class Row:
    """What one account or user, or one user in one account, used in one interval."""

    group: tuple[str, ...]
    start: datetime
    end: datetime
    numbers: set[str] = field(default_factory=set)
    cpu_hours: float = 0.0
    gpu_hours: float = 0.0

    @property
    def jobs(self) -> int:
        """Jobs that ran. One that was requeued is one."""
        return len(self.numbers)

    def add(self, run: Run, share: float) -> None:
        """Count a part of a run."""
        self.numbers.add(run.number)
        self.cpu_hours += run.seconds * share * run.cpus / 3600
        self.gpu_hours += run.seconds * share * run.gpus / 3600


@dataclass(frozen=True, kw_only=True)
class Usage:
    """A whole report."""

    start: datetime
    end: datetime
    by: tuple[str, ...]
    step: str | None
    rows: tuple[Row, ...]
    """By time, and the largest use first within an interval. Where nothing was used is no row."""
    total: Row


def summarize(
    runs: Iterable[Run], *, start: datetime, end: datetime, by: Sequence[str], step: str | None = None
) -> Usage:
    """Hours of all runs. A run that crosses a boundary counts in each interval as long as it ran there.

    When a run was suspended is not known from its record: its time is spread evenly from its start to its end.
    """
    spans = intervals(start, end, step)
    begins = [begin for begin, _ in spans]
    rows: dict[tuple[int, tuple[str, ...]], Row] = {}
    total = Row(group=(), start=start, end=end)
    for run in runs:
        group = tuple(str(getattr(run, name)) for name in by)
        total.add(run, 1.0)
        for index, share in _shares(run, spans, begins):
            first, last = spans[index]
            rows.setdefault((index, group), Row(group=group, start=first, end=last)).add(run, share)
    order = sorted(rows.values(), key=lambda row: (row.start, -row.cpu_hours, row.group))
    return Usage(start=start, end=end, by=tuple(by), step=step, rows=tuple(order), total=total)


def _shares(
    run: Run, spans: Sequence[tuple[datetime, datetime]], begins: Sequence[datetime]
) -> Iterator[tuple[int, float]]:
    """In which intervals a run was, and which part of it. The parts are 1 in all.

    sacct has cut the run to the report's time already; a second more or less, by its clock, goes to the edge.
    """
    length = (run.ended - run.began).total_seconds()
    first = max(bisect_right(begins, run.began) - 1, 0)
    if length <= 0:
        yield first, 1.0
        return
    for index in range(first, len(spans)):
        begin = run.began if index == first else spans[index][0]
        until = run.ended if index == len(spans) - 1 else min(run.ended, spans[index][1])
        if until <= begin:
            break
        yield index, (until - begin).total_seconds() / length


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
    return csv_text([*usage.by, *_row((), usage.total)], (_row(usage.by, row) for row in usage.rows))


def csv_text(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """A heading and a line for each row. Users choose their jobs' accounts: a formula gets a quote before it."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: _harmless(value) for key, value in row.items()} for row in rows)
    return text.getvalue()


def _harmless(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    # What is read may take a carriage return for a new line, and csv puts no quotation marks around one. What is one
    # cell to us may be several to a spreadsheet that divides at semicolons.
    parts = re.split(r"(?<=[;\t])", value)
    text = "".join(f"'{part}" if _FORMULA.match(part) else part for part in parts)
    # Nor may it move the cursor of who looks at it.
    return "".join(character if character.isprintable() or character in "\n\t" else " " for character in text)


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
    if usage.step:
        table.add_column(usage.step.upper(), no_wrap=True)
    for name in usage.by:
        table.add_column(name.upper(), overflow="fold", min_width=len(name))
    blanks = [""] * (len(table.columns) - 1)
    for name in ("JOBS", "CPU HOURS", "CPU %", "GPU HOURS", "GPU %"):
        table.add_column(name, justify="right", no_wrap=True)
    before: datetime | None = None
    for row in usage.rows:
        when = [] if usage.step is None else ["" if row.start == before else f"{row.start:%Y-%m-%d}"]
        before = row.start
        table.add_row(*when, *(escape(printable(name)) for name in row.group), *_numbers(row, usage.total))
    table.add_section()
    table.add_row("[bold]all[/]", *blanks, *_numbers(usage.total, usage.total), style="bold")
    console.print(table)


def _numbers(row: Row, total: Row) -> list[str]:
    cpus, gpus = _percent(row.cpu_hours, total.cpu_hours), _percent(row.gpu_hours, total.gpu_hours)
    return [f"{row.jobs:,}", hours(row.cpu_hours), cpus, hours(row.gpu_hours), gpus]


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f}" if whole else "-"
