"""From runs of jobs to hours by account, user and time."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from cli.usage.times import intervals
from images.common.slurm_runs import Run

DIMENSIONS = ("account", "user")


@dataclass(frozen=True, kw_only=True)
class Row:
    """What one account or user, or one user in one account, used in one interval."""

    group: tuple[str, ...]
    start: datetime
    end: datetime
    jobs: int
    cpu_hours: float
    gpu_hours: float


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

    @property
    def has_gpus(self) -> bool:
        """Whether any GPU was used."""
        return self.total.gpu_hours > 0


@dataclass
class _Sum:
    jobs: set[str] = field(default_factory=set)
    cpu_seconds: float = 0.0
    gpu_seconds: float = 0.0

    def add(self, run: Run, share: float) -> None:
        """Count a part of a run."""
        self.jobs.add(run.number)
        self.cpu_seconds += run.seconds * share * run.cpus
        self.gpu_seconds += run.seconds * share * run.gpus

    def row(self, group: tuple[str, ...], start: datetime, end: datetime) -> Row:
        """The hours."""
        return Row(
            group=group, start=start, end=end, jobs=len(self.jobs),
            cpu_hours=self.cpu_seconds / 3600, gpu_hours=self.gpu_seconds / 3600,
        )  # fmt: skip


def summarize(
    runs: Iterable[Run], *, start: datetime, end: datetime, by: Sequence[str], step: str | None = None
) -> Usage:
    """Hours of all runs. A run that crosses a boundary counts in each interval as long as it ran there.

    When a run was suspended is not known from its record: its time is spread evenly from its start to its end.
    """
    spans = intervals(start, end, step)
    begins = [begin for begin, _ in spans]
    sums: dict[tuple[int, tuple[str, ...]], _Sum] = defaultdict(_Sum)
    total = _Sum()
    for run in runs:
        group = tuple(str(getattr(run, name)) for name in by)
        total.add(run, 1.0)
        for index, share in _shares(run, spans, begins):
            sums[index, group].add(run, share)
    rows = [(index, found.row(group, *spans[index])) for (index, group), found in sums.items()]
    rows.sort(key=lambda item: (item[0], -item[1].cpu_hours, item[1].group))
    return Usage(
        start=start, end=end, by=tuple(by), step=step, rows=tuple(row for _, row in rows),
        total=total.row((), start, end),
    )  # fmt: skip


def _shares(
    run: Run, spans: Sequence[tuple[datetime, datetime]], begins: Sequence[datetime]
) -> list[tuple[int, float]]:
    """In which intervals a run was, and which part of it. The parts are 1 in all.

    sacct has cut the run to the report's time already; a second more or less, by its clock, goes to the edge.
    """
    length = (run.ended - run.began).total_seconds()
    first = max(bisect_right(begins, run.began) - 1, 0)
    if length <= 0:
        return [(first, 1.0)]
    found: list[tuple[int, float]] = []
    for index in range(first, len(spans)):
        begin = run.began if index == first else spans[index][0]
        until = run.ended if index == len(spans) - 1 else min(run.ended, spans[index][1])
        if until > begin:
            found.append((index, (until - begin).total_seconds() / length))
        if run.ended <= spans[index][1]:
            break
    return found
