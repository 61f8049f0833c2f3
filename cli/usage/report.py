"""From runs of jobs to hours, and what was used of them, by account, user or job: as a table, as JSON and as CSV."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from rich.markup import escape
from rich.table import Table

from cli.errors import USAGE, Failure
from cli.kubectl import client
from cli.kubectl.client import Kubectl
from cli.text import open_console, printable
from config.cluster import ClusterConfig
from images.common.slurm_runs import RecordError, Run, parse_runs, runs_between

DIGITS = 6
"""Decimal places of hours for programs: less than a hundredth of a second."""

MILLION = 10**6
GIB = 2**30

_FORMULA = re.compile(r"(^|;)(?=[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20])")
"""Where a spreadsheet would begin a formula, also in full width, and where it divides at semicolons. From OWASP, "CSV
Injection"."""

HOURS = {
    "JOBS": "jobs", "CPU HOURS": "cpu_hours", "CPU %": "cpu_percent", "GPU HOURS": "gpu_hours", "GPU %": "gpu_percent",
}  # fmt: skip
EFFICIENCY = {
    "JOBS": "jobs", "CPU H": "cpu_hours_asked", "USED": "cpu_hours_used", "CPU %": "cpu_percent",
    "WASTED": "cpu_hours_wasted", "GIB H": "memory_gib_hours_asked", "MEM %": "memory_percent",
    "GPU H": "gpu_hours_asked",
}  # fmt: skip
"""Heading of a column -> which figure."""


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

    def add(self, run: Run, share: float) -> None:
        """Count the part of a run that counts."""
        self.numbers.add(run.number)
        hours = run.seconds * share / 3600
        self.cpu_asked += run.cpus * hours
        self.gpu_asked += run.gpus * hours
        if run.cpu_seconds is not None:
            used = run.cpu_seconds * share / 3600
            self.cpu_measured += run.cpus * hours
            self.cpu_used += used
            # Job by job: one that takes more than its share makes no good for the CPUs that another left idle.
            self.cpu_wasted += max(run.cpus * hours - used, 0.0)
        if run.memory is None:
            return
        self.memory_asked += run.memory / GIB * hours
        if run.memory_used is not None:
            self.memory_measured += run.memory / GIB * hours
            self.memory_used += run.memory_used / GIB * hours


@dataclass(frozen=True, kw_only=True)
class Summary:
    """A whole report."""

    start: datetime
    end: datetime
    by: tuple[str, ...]
    rows: tuple[Row, ...]
    """What wasted most first; of what was not measured, what had most."""
    total: Row


def summarize(runs: Iterable[Run], *, start: datetime, end: datetime, now: datetime, by: Sequence[str]) -> Summary:
    """All runs between two times. What a run used is spread evenly over its time, as no record says when it was."""
    rows: dict[tuple[str, ...], Row] = {}
    total = Row(group=())
    for run in runs:
        share = _share(run, start, end, now)
        if share == 0 or run.seconds == 0 or run.cpus == 0:
            continue
        group = tuple(str(getattr(run, name)) for name in by)
        rows.setdefault(group, Row(group=group)).add(run, share)
        total.add(run, share)
    order = sorted(rows.values(), key=lambda row: (-row.cpu_wasted, -row.cpu_asked, row.group))
    return Summary(start=start, end=end, by=tuple(by), rows=tuple(order), total=total)


def _share(run: Run, start: datetime, end: datetime, now: datetime) -> float:
    """Which part of a run lies between the times."""
    if run.start is None:
        return 0.0
    until = now.timestamp() if run.end is None else run.end
    inside = min(until, end.timestamp()) - max(run.start, start.timestamp())
    return max(inside, 0.0) / (until - run.start) if until > run.start else 0.0


Numbers = Callable[[Summary, Row], dict[str, Any]]
"""The figures of a row for scripts. CHANGELOG.md names keys that go (docs/usage.md)."""


def hours(summary: Summary, row: Row) -> dict[str, Any]:
    """Hours, and their part of all. Each row says for itself of which time it is, as reports are put together."""
    total = summary.total
    return {
        "start": _iso(summary.start),
        "end": _iso(summary.end),
        "jobs": row.jobs,
        "cpu_hours": round(row.cpu_asked, DIGITS),
        "cpu_percent": _percent(row.cpu_asked, total.cpu_asked),
        "gpu_hours": round(row.gpu_asked, DIGITS),
        "gpu_percent": _percent(row.gpu_asked, total.gpu_asked),
    }


def efficiency(_summary: Summary, row: Row) -> dict[str, Any]:
    """What was not measured is null. CPUs may be above 100 % where jobs are not kept to theirs."""
    cpu, memory = row.cpu_measured > 0, row.memory_measured > 0
    hours = {
        "cpu_hours_asked": row.cpu_asked,
        "cpu_hours_measured": row.cpu_measured,
        "cpu_hours_used": row.cpu_used if cpu else None,
        "cpu_hours_wasted": row.cpu_wasted if cpu else None,
        "memory_gib_hours_asked": row.memory_asked,
        "memory_gib_hours_measured": row.memory_measured,
        "memory_gib_hours_used": row.memory_used if memory else None,
        "gpu_hours_asked": row.gpu_asked,
    }
    return {
        "jobs": row.jobs,
        **{name: None if number is None else round(number, DIGITS) for name, number in hours.items()},
        "cpu_percent": _percent(row.cpu_used, row.cpu_measured),
        "memory_percent": _percent(row.memory_used, row.memory_measured),
    }


def _percent(part: float, whole: float) -> float | None:
    return round(100 * part / whole, 2) if whole else None


def as_data(summary: Summary, numbers: Numbers, *, namespace: str) -> dict[str, Any]:
    """The report for scripts."""
    return {
        "namespace": namespace,
        "start": _iso(summary.start),
        "end": _iso(summary.end),
        "by": list(summary.by),
        "rows": [{**_named(summary, row), **numbers(summary, row)} for row in summary.rows],
        "total": numbers(summary, summary.total),
    }


def as_csv(summary: Summary, numbers: Numbers) -> str:
    """The rows of the report, with a heading, and none for the total."""
    text = io.StringIO()
    writer = csv.DictWriter(text, [*summary.by, *numbers(summary, summary.total)], lineterminator="\n")
    writer.writeheader()
    for row in summary.rows:
        # Without enforcement users name accounts as they like, also as what a spreadsheet would compute.
        names = {name: printable(_FORMULA.sub(r"\1'", value)) for name, value in _named(summary, row).items()}
        writer.writerow({**names, **numbers(summary, row)})
    return text.getvalue()


def _named(summary: Summary, row: Row) -> dict[str, str]:
    return dict(zip(summary.by, row.group, strict=True))


def print_table(summary: Summary, columns: Mapping[str, str], numbers: Numbers) -> None:
    """A table of groups with their figures, and the sum of all. What was not measured is a dash."""
    console = open_console()
    when = f"{summary.start:%Y-%m-%d %H:%M} to {summary.end:%Y-%m-%d %H:%M} UTC"
    if not summary.rows:
        console.print(f"no job ran from {when}", markup=False)
        return
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), caption=when, caption_justify="left")
    for name in summary.by:
        table.add_column(name.upper(), overflow="fold", min_width=len(name))
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)

    def cells(row: Row) -> list[str]:
        found = numbers(summary, row)
        return [_cell(key, found[key]) for key in columns.values()]

    for row in summary.rows:
        table.add_row(*(escape(printable(name)) for name in row.group), *cells(row))
    table.add_section()
    table.add_row("all", *[""] * (len(summary.by) - 1), *cells(summary.total), style="bold")
    console.print(table)


def _iso(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def _cell(key: str, number: float | None) -> str:
    """Three digits of hours at least, and no more than matter, so that many fit: `12.50`, `384,000`, `1.2M`."""
    if number is None:
        return "-"
    if key == "jobs":
        return f"{number:,}"
    if key.endswith("percent"):
        return f"{number:.1f}"
    digits = 2 if number < 100 else 1 if number < 1000 else 0
    return f"{number:,.{digits}f}" if number < MILLION else f"{number / MILLION:,.1f}M"


# ---------------------------------------------------------------- the question to slurmdbd

_DISABLED = "accounting storage is disabled"
_AWAY = (
    "`slurmstack status` shows whether controller-0, slurmdbd-0 and the database run. Jobs go on without them, and "
    "what they used is recorded when they are back"
)

_LONGEST = 600
"""Seconds: the records of years may rightly take minutes."""


def dimensions_of(by: str, known: Sequence[str]) -> tuple[str, ...]:
    """`account,user` as a tuple. Raises Failure for anything else than names that are known."""
    names = tuple(name.strip() for name in by.split(","))
    for name in names:
        if name not in known:
            message = f"--by {by!r}: {name!r} is none of {', '.join(known)}"
            raise Failure(message, hint="several: account,user", code=USAGE)
    return names


def refuse_without_accounting(config: ClusterConfig) -> None:
    """Raises Failure where nothing is recorded."""
    if not config.accounting.enabled:
        raise Failure(
            "this cluster records nothing: accounting.enabled is false in the stack file",
            hint="set it to true and apply; jobs are recorded from then on",
            code=USAGE,
        )


def read_runs(kubectl: Kubectl, namespace: str, start: datetime, end: datetime, *, whole: bool = False) -> list[Run]:
    """Runs of jobs between two times, as `runs_between` has them. Raises Failure."""
    return ask_sacct(kubectl, namespace, runs_between(start, end, whole=whole))


def ask_sacct(kubectl: Kubectl, namespace: str, command: Sequence[str]) -> list[Run]:
    """The runs that a call of sacct in the controller's pod prints. Raises Failure with sacct's own message."""
    done = client.slurmdbd_answers(kubectl, namespace)  # what does not even answer this is not waited for
    if done.returncode == 0:
        done = client.in_controller(kubectl, namespace, *command, seconds=_LONGEST)
    if done.returncode == client.NO_SLURMDBD:
        raise Failure(f"the records cannot be read: {client.SILENT_SLURMDBD}", hint=_AWAY)
    if done.returncode != 0:
        why = client.complaint(done)
        hint = _AWAY if _DISABLED not in why else "the cluster was applied without it; `slurmstack up` turns it on"
        raise Failure(f"sacct could not read the records: {why}", hint=client.hint_after(why, hint))
    try:
        return parse_runs(done.stdout.removesuffix("\n").split("\n"))
    except RecordError as error:
        raise Failure(str(error)) from error
