"""Runs of jobs as `sacct` prints them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

FIELDS = ("JobIDRaw", "User", "Account", "Start", "End", "ElapsedRaw", "AllocTRES", "AllocCPUS")
"""What is asked for, in this order."""

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
    return [
        "env", "SLURM_TIME_FORMAT=%s", "sacct", "--allusers", "--allocations", "--duplicates", "--truncate",
        "--noheader", "--parsable2", "--noconvert", f"--starttime=uts{int(start.timestamp())}",
        f"--endtime=uts{int(end.timestamp())}", f"--format={','.join(FIELDS)}",
    ]  # fmt: skip


def parse_runs(lines: Iterable[str]) -> list[Run]:
    """What sacct printed. Jobs that have not run are left out. Raises RecordError."""
    return [run for line in lines if line.strip() and (run := _run(line.rstrip("\n"))) is not None]


def _run(line: str) -> Run | None:
    values = line.split("|")
    if len(values) != len(FIELDS):
        raise RecordError(f"sacct printed a line that is not understood: {line[:200]!r}")
    row = dict(zip(FIELDS, values, strict=True))
    if not row["ElapsedRaw"].isdecimal() or not row["Start"].isdecimal() or not row["End"].isdecimal():
        return None  # has not begun: Unknown or None
    tres = _tres(row["AllocTRES"])
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
        gpus=_gpus(tres),
    )


def _tres(text: str) -> dict[str, int]:
    """`cpu=2,gres/gpu=1,mem=512M` as numbers; those with a unit are left out, as nothing here needs them."""
    found = re.findall(r"(?:^|,)([^=,]+)=(\d+)(?=,|$)", text)
    return {name: int(count) for name, count in found}


def _gpus(tres: dict[str, int]) -> int:
    """GPUs of all types. Slurm counts `gres/gpu:h100` in `gres/gpu` too, where both are recorded."""
    total = tres.get("gres/gpu")
    return sum(count for name, count in tres.items() if name.startswith("gres/gpu:")) if total is None else total
