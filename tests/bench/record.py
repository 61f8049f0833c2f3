"""A run as it is kept: raw samples, and what is needed to judge them, as JSON. Nothing in it names a machine."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.bench.checks import BadValueError, check_record, rows_of
from tests.bench.row import Row
from tests.stacks import ROOT

SCHEMA = 1
"""Goes up when a reader of older files would misunderstand newer ones."""

KEPT = ROOT / "docs" / "benchmarks"
"""Whole runs, under version control. A run of some parts gets here only by `--json`."""

PASSING = ROOT / "bench-results"
"""Runs of some parts, for oneself."""


class RecordError(Exception):
    """A file that is no record, one of another kind, or one with values that cannot be used."""


@dataclass(kw_only=True)
class Record:
    """One run."""

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

    def dump(self) -> str:
        """As JSON; the same record is always the same text."""
        return json.dumps({"schema": SCHEMA, **dataclasses.asdict(self)}, indent=1, ensure_ascii=False) + "\n"


def begin(parts: list[str], *, complete: bool) -> Record:
    """A run that starts now, on this machine, with these sources."""
    return Record(
        date=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        commit=_git("rev-parse", "--short", "HEAD").strip(),
        dirty=bool(_git("status", "--porcelain", "--untracked-files=no").strip()),
        machine=machine(),
        load_at_start=[round(load, 2) for load in os.getloadavg()],
        parts=parts,
        complete=complete,
    )


def machine() -> dict[str, Any]:
    """What times depend on."""
    cpu = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    memory = Path("/proc/meminfo").read_text(encoding="utf-8")
    return {
        "cpu": next((line.partition(":")[2].strip() for line in cpu.splitlines() if line.startswith("model name")), ""),
        "cores": os.cpu_count() or 1,
        "memory_gib": round(int(memory.split()[1]) / 2**20, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def read(path: Path) -> Record:
    """A record that was kept. Raises RecordError."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        schema = document.pop("schema")
        if schema != SCHEMA:
            raise RecordError(f"{path}: is of schema {schema}; this program reads {SCHEMA}")
        rows = document.pop("rows")
        check_record(document)
        return Record(**document, rows=rows_of(rows))
    except BadValueError as error:
        raise RecordError(f"{path}: {error}") from error
    except OSError as error:
        raise RecordError(f"{path}: {error.strerror}") from error
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise RecordError(f"{path}: is no record of `make bench`: {error!r}") from error


def file_for(record: Record) -> Path:
    """Where a record is kept by default; never a file that is there already."""
    directory = KEPT if record.complete and not record.failed else PASSING
    parts = [] if record.complete else sorted(set(record.parts))
    stem = "-".join([record.date[:10], record.commit, *parts])
    return next(
        path
        for number in range(1, 1000)
        if not (path := directory / f"{stem}{f'-{number}' if number > 1 else ''}.json").exists()
    )


def write(record: Record, path: Path) -> None:
    """Keep it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(record.dump(), encoding="utf-8")


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else "unknown"
