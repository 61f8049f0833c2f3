"""Runs of jobs as `sacct` prints them."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

FIELDS = ("JobIDRaw", "User", "Start", "End", "ElapsedRaw", "AllocTRES", "AllocCPUS", "Account")
"""What is asked for, in this order. Only an account may be any text, so it comes last."""

DELIMITER = secrets.token_hex(8)
"""Nobody may guess it: without enforcement users name accounts as they like, with `|` and line breaks."""

UNKNOWN = "(none)"
"""Stands for the account of a job that had none, and for a user whom Slurm does not know by name."""


class RecordError(ValueError):
    """A line that sacct cannot have printed."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run of a job. A job that was requeued has several with the same id."""

    job: str
    user: str
    account: str
    start: datetime
    end: datetime
    seconds: int
    """Time that it ran; less than from start to end if it was suspended meanwhile."""
    cpus: int
    gpus: int


def sacct_command(start: datetime, end: datetime) -> list[str]:
    """The command line. Jobs that are still running count up to now, and only what lies between the times counts."""
    return [*sacct(FIELDS), "--allocations", "--duplicates", "--truncate", *between(start, end)]


def sacct(fields: Sequence[str]) -> list[str]:
    """A call of sacct for everybody's jobs, whose lines `rows` takes apart. Times are seconds since 1970."""
    shape = ("--allusers", "--noheader", "--parsable2", f"--delimiter={DELIMITER}", "--noconvert")
    return ["env", "SLURM_TIME_FORMAT=%s", "sacct", *shape, f"--format={','.join(fields)}"]


def between(start: datetime, end: datetime) -> list[str]:
    """Options of sacct for jobs that ran between two times."""
    return [f"--starttime=uts{int(start.timestamp())}", f"--endtime=uts{int(end.timestamp())}"]


def rows(lines: Iterable[str], fields: Sequence[str]) -> Iterator[dict[str, str]]:
    """Records by their fields, the last of which goes on over line breaks. Raises RecordError."""
    row: dict[str, str] | None = None
    for line in lines:
        values = line.split(DELIMITER)
        if len(values) == len(fields):
            if row is not None:
                yield row
            row = dict(zip(fields, values, strict=True))
        elif row is not None and len(values) == 1:
            row[fields[-1]] += f"\n{line}"
        elif line.strip():
            raise RecordError(f"sacct printed a line that is not understood: {line[:200]!r}")
    if row is not None:
        yield row


def parse_runs(lines: Iterable[str]) -> list[Run]:
    """What sacct printed. Jobs that have not run are left out. Raises RecordError."""
    return [run for row in rows(lines, FIELDS) if (run := _run(row)) is not None]


def _run(row: Mapping[str, str]) -> Run | None:
    if not row["ElapsedRaw"].isdecimal() or not row["Start"].isdecimal() or not row["End"].isdecimal():
        return None  # has not begun: Unknown or None
    tres = counts(row["AllocTRES"])
    cpus = tres.get("cpu", int(row["AllocCPUS"] or 0))
    if row["ElapsedRaw"] == "0" or cpus == 0:
        return None
    return Run(
        job=row["JobIDRaw"],
        user=row["User"] or UNKNOWN,
        account=row["Account"] or UNKNOWN,
        start=datetime.fromtimestamp(int(row["Start"]), UTC),
        end=datetime.fromtimestamp(int(row["End"]), UTC),
        seconds=int(row["ElapsedRaw"]),
        cpus=cpus,
        gpus=gpus(tres),
    )


def counts(text: str) -> dict[str, int]:
    """`cpu=2,gres/gpu=1` as numbers. Memory, which is the one with a unit, is left out."""
    found = re.findall(r"(?:^|,)([^=,]+)=(\d+)(?=,|$)", text)
    return {name: int(count) for name, count in found}


def gpus(tres: dict[str, int]) -> int:
    """GPUs of all types. Slurm counts `gres/gpu:h100` in `gres/gpu` too, where both are recorded."""
    total = tres.get("gres/gpu")
    return sum(count for name, count in tres.items() if name.startswith("gres/gpu:")) if total is None else total
