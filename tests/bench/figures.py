"""What a run measures: samples of named rows, kept as JSON. Nothing in a file names a machine."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.stacks import ROOT

KEPT = ROOT / "docs" / "benchmarks"
"""Whole runs, under version control. A run of some parts gets here only by `--json`."""

PASSING = ROOT / "bench-results"
"""Runs of some parts, for oneself."""


@dataclass(kw_only=True)
class Row:
    """Samples of one thing, less being better."""

    part: str
    name: str
    samples: list[float]
    unit: str = "s"
    goal: float | None = None
    """What the median should not exceed, in the row's unit."""
    note: str = ""
    nodes: int | None = None
    """In older files: of how many slurmd on one machine this is the figure."""
    worst: bool = False
    """Whether the goal is for the largest sample, not for the median."""

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    @property
    def told_median(self) -> str:
        return f"{number(self.median)} {self.unit}"

    @property
    def spread(self) -> str:
        """The least and the greatest sample; nothing where there is one only."""
        return f"{number(min(self.samples))}-{number(max(self.samples))}" if len(self.samples) > 1 else ""

    @property
    def told_goal(self) -> str:
        """The goal, and whether it is missed."""
        if self.goal is None:
            return ""
        missed = (max(self.samples) if self.worst else self.median) > self.goal
        return f"{self.goal:g} {self.unit}{', missed' if missed else ''}"


@dataclass(kw_only=True)
class Run:
    """All rows of one run, and what is needed to judge them."""

    date: str
    """Start, as 2026-11-22T23:55:00Z."""
    commit: str
    dirty: bool
    """Whether the sources differed from the commit."""
    machine: Mapping[str, Any]
    load_at_start: list[float]
    """Runnable processes on average of 1, 5 and 15 minutes. Well above 0.5, something else was running."""
    parts: list[str]
    complete: bool
    """Whether these are all parts."""
    failed: str = ""
    """The part that ended the run, and why."""
    left_out: list[str] = field(default_factory=list)
    """What could not be measured here, and why."""
    rows: list[Row] = field(default_factory=list)

    def write(self, path: Path) -> None:
        """Keep it."""
        text = json.dumps({"schema": 1, **dataclasses.asdict(self)}, indent=1, ensure_ascii=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n", encoding="utf-8")

    def default_path(self) -> Path:
        """Where it is kept unless told otherwise; never a file that is there already."""
        directory = KEPT if self.complete and not self.failed else PASSING
        stem = "-".join([self.date[:10], self.commit, *([] if self.complete else sorted(self.parts))])
        paths = (directory / f"{stem}{f'-{count}' if count > 1 else ''}.json" for count in range(1, 1000))
        return next(path for path in paths if not path.exists())


def read(path: Path) -> Run:
    """A run that was kept."""
    document = json.loads(path.read_text(encoding="utf-8"))
    del document["schema"]
    return Run(**{**document, "rows": [Row(**row) for row in document["rows"]]})


def show(run: Run) -> str:
    """The figures of a run as a Markdown table."""
    lines = [["what", "median", "spread", "goal", "commit", "note"]]
    lines += [[row.name, row.told_median, row.spread, row.told_goal, run.commit, row.note] for row in run.rows]
    head, *others = (f"| {' | '.join(line)} |" for line in lines)
    remarks = [f"left out: {what}" for what in run.left_out]
    remarks += (
        [f"the machine was busy when it began (load {run.load_at_start[0]:g})"] if run.load_at_start[0] > 1 else []
    )
    remarks += [f"the sources were not those of {run.commit}"] if run.dirty else []
    remarks += [f"it ended early: {run.failed}"] if run.failed else []
    return "\n".join([head, "|" + "---|" * len(lines[0]), *others, *remarks])


def begin(parts: list[str], *, complete: bool) -> Run:
    """A run that starts now, on this machine, with these sources."""
    cpu = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    memory = Path("/proc/meminfo").read_text(encoding="utf-8")
    return Run(
        date=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        commit=_git("rev-parse", "--short", "HEAD").strip(),
        dirty=bool(_git("status", "--porcelain", "--untracked-files=no").strip()),
        machine={
            "cpu": next((line.split(": ")[1] for line in cpu.splitlines() if line.startswith("model name")), ""),
            "cores": os.cpu_count() or 1,
            "memory_gib": round(int(memory.split()[1]) / 2**20, 1),
            "kernel": platform.release(),
            "python": platform.python_version(),
        },
        load_at_start=[round(load, 2) for load in os.getloadavg()],
        parts=parts,
        complete=complete,
    )


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else "unknown"


@dataclass(kw_only=True)
class Bench:
    """Collects the rows of a run."""

    runs: int | None = None
    """How often everything is measured, instead of what each row would do by itself."""
    rows: list[Row] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    """What cannot be measured on this machine, and why."""
    part: str = ""
    """The part that measures just now."""

    def times(self, usual: int) -> int:
        """How often to measure what is usually measured so often."""
        return usual if self.runs is None else self.runs

    def measure(self, name: str, action: Callable[[int], float], *, runs: int, **more: Any) -> Row:
        """Call an action several times, which returns a sample each time; it gets the number of the run."""
        samples = []
        for count in range(self.times(runs)):
            samples.append(action(count))
            self.say(f"{name}: {number(samples[-1])}")
        return self.take(name, samples, **more)

    def take(self, name: str, samples: Sequence[float], **more: Any) -> Row:
        """A row of samples; `more`: fields of `Row`."""
        self.rows.append(Row(part=self.part, name=name, samples=list(samples), **more))
        self.say(f"{name}: {', '.join(map(number, samples))} {self.rows[-1].unit}")
        return self.rows[-1]

    def leave_out(self, what: str) -> None:
        """Note what cannot be measured."""
        self.say(f"left out: {what}")
        self.left_out.append(what)

    def say(self, text: str) -> None:
        """Tell how far it is; what is printed at the end is not mixed with it."""
        print(f"{time.strftime('%H:%M:%S')} [{self.part}] {text}", file=sys.stderr, flush=True)


def timed(action: Callable[[], object]) -> float:
    """Seconds that an action takes."""
    started = time.monotonic()
    action()
    return time.monotonic() - started


def number(value: float) -> str:
    """Two decimals; three where it is small, one or none where it is large, none of nothing."""
    size = abs(value)
    decimals = 0 if size >= 1000 or not size else 1 if size >= 100 else 2 if size >= 0.1 else 3
    return f"{value:,.{decimals}f}"
