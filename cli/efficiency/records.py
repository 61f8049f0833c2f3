"""Jobs and their steps as `sacct` prints them: what they asked for, and what Slurm measured.

Where each figure comes from, with `jobacct_gather/linux` as with `/cgroup`:

- CPU time is TotalCPU. The kernel counts it for processes that have ended and were waited for, so it is right for jobs
  shorter than any sampling. What a killed job's processes used is known by sampling only.
- Memory is known by sampling only (JobAcctGatherFrequency, 30 seconds by default): `mem` of TRESUsageInTot, which is
  the sum of the peaks of a step's tasks. That is what `seff` takes, and not MaxRSS, which is the one largest task's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from cli.usage.records import UNKNOWN, RecordError, between, counts, gpus, rows, sacct

FIELDS = (
    "JobID", "JobIDRaw", "User", "State", "Start", "End", "ElapsedRaw", "AllocTRES", "AllocCPUS", "NNodes", "TotalCPU",
    "TRESUsageInTot", "Account",
)  # fmt: skip
"""What is asked for, in this order: see cli/usage/records.py."""

UNMEASURED = 0.1
"""The part of a job's time in steps that were not measured from which on the whole job counts as not measured."""

LOOKED = 60
"""Seconds after which Slurm has looked at a step more than at its first moment, as often as it looks by default."""

_WAITED_FOR = ("COMPLETED", "FAILED")
"""States of steps that ended by themselves, so that the kernel's count of their processes is whole."""

_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40, "P": 2**50}


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step of a job, the batch script among them."""

    start: int
    seconds: int
    cpu_seconds: float | None
    memory: int | None
    """Bytes."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """One run of a job, of a task of an array, or of a part of a heterogeneous job."""

    job: str
    """As people write it: `12`, `12_3` of an array, `12+1` of a heterogeneous job."""
    number: str
    """Slurm's own, one for each of those."""
    user: str
    account: str
    state: str
    start: int | None
    """Seconds since 1970; None before it has started."""
    end: int | None
    """None before it has ended."""
    seconds: int
    """Time that it ran; less than from start to end if it was suspended meanwhile."""
    nodes: int
    cpus: int
    gpus: int
    memory: int | None
    """Bytes that it was given on all nodes. None where Slurm does not share out memory."""
    steps: tuple[Step, ...]

    @property
    def cpu_seconds(self) -> float | None:
        """What it used; None if that is not known."""
        return sum(step.cpu_seconds or 0.0 for step in self.steps) if self._covers("cpu_seconds") else None

    @property
    def memory_used(self) -> int | None:
        """Bytes: the largest sum of the peaks of steps that ran at the same time. None if that is not known.

        `seff` takes the largest step. Of many steps side by side, as scripts start them with `srun ... &`, that would
        be the memory of one.
        """
        if not self._covers("memory"):
            return None
        changes = [change for step in self.steps for change in _changes(step)]
        at_once = most = 0
        for _, change in sorted(changes):  # what ends goes first, so that steps in a row are not added up
            at_once += change
            most = max(most, at_once)
        return most

    def _covers(self, figure: str) -> bool:
        """Whether steps with this figure make up so much of the job that it can stand for all of it."""
        missing = sum(step.seconds for step in self.steps if getattr(step, figure) is None)
        known = any(getattr(step, figure) is not None for step in self.steps)
        return self.end is not None and self.seconds > 0 and known and missing < UNMEASURED * self.seconds


def _changes(step: Step) -> list[tuple[int, int]]:
    """When memory is taken and given back."""
    memory = step.memory or 0
    return [(step.start, memory), (step.start + max(step.seconds, 1), -memory)]


_NO_TIME: Final = frozenset({"", "INVALID", "UNLIMITED"})
"""What sacct also prints for one (secs2time_str of Slurm): one such record must not take all others away."""


def jobs_between(start: datetime, end: datetime) -> list[str]:
    """The command line for all runs between two times, each as a whole."""
    return [*sacct(FIELDS), "--duplicates", *between(start, end)]


def jobs_named(jobs: Sequence[str]) -> list[str]:
    """The command line for these jobs, however old: the last run of each."""
    return [*sacct(FIELDS), f"--jobs={','.join(jobs)}"]


def parse_jobs(lines: Iterable[str]) -> list[Job]:
    """What sacct printed: each job, with its steps below it. Raises RecordError."""
    found: list[tuple[dict[str, str], list[Step]]] = []
    for row in rows(lines, FIELDS):
        if "." not in row["JobIDRaw"]:
            found.append((row, []))
        elif not found:
            raise RecordError(f"sacct printed a step without its job: {row['JobIDRaw']!r}")
        elif row["Start"].isdecimal():
            found[-1][1].append(_step(row))
    return [_job(row, steps) for row, steps in found]


def _step(row: dict[str, str]) -> Step:
    used = amounts(row["TRESUsageInTot"])
    cpu_seconds = duration(row["TotalCPU"])
    seconds = _number(row["ElapsedRaw"]) or 0
    # Slurm may have looked at the first moment of a step, and never again before it was killed.
    looked = "cpu" in used and (seconds >= LOOKED or duration(used["cpu"]) > 0)
    # A count of nothing at all is that of a cluster that gathers nothing, or of a node that was lost.
    counted = looked or row["State"].startswith(_WAITED_FOR)
    return Step(
        start=int(row["Start"]),
        seconds=seconds,
        cpu_seconds=cpu_seconds if cpu_seconds and counted else None,
        memory=size(used["mem"]) if "mem" in used else None,
    )


def _job(row: dict[str, str], steps: Sequence[Step]) -> Job:
    tres = counts(row["AllocTRES"])
    memory = amounts(row["AllocTRES"]).get("mem")
    return Job(
        job=row["JobID"],
        number=row["JobIDRaw"],
        user=row["User"] or UNKNOWN,
        account=row["Account"] or UNKNOWN,
        state=row["State"],
        start=_number(row["Start"]),
        end=_number(row["End"]),
        seconds=_number(row["ElapsedRaw"]) or 0,
        nodes=_number(row["NNodes"]) or 0,
        cpus=tres.get("cpu", _number(row["AllocCPUS"]) or 0),
        gpus=gpus(tres),
        memory=size(memory) if memory else None,
        steps=tuple(steps),
    )


def _number(text: str) -> int | None:
    """None of nothing, and of Unknown and None, which sacct prints of a time that has not come."""
    return int(text) if text.isdecimal() else None


def amounts(text: str) -> dict[str, str]:
    """`cpu=00:00:05,mem=1843200` by their names."""
    return dict(part.split("=", 1) for part in text.split(",") if "=" in part)


def size(text: str) -> int:
    """Bytes of `1843200` or `512M`. Raises RecordError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGTP]?)", text)
    if match is None:
        raise RecordError(f"sacct printed a size that is not understood: {text[:200]!r}")
    return round(float(match[1]) * _UNITS[match[2]])


def duration(text: str) -> float:
    """Seconds of `[DAYS-][HOURS:]MINUTES:SECONDS[.FRACTION]`; 0 of nothing, and of no time. Raises RecordError."""
    said = "00:00" if text in _NO_TIME else text
    match = re.fullmatch(r"(?:(?:(\d+)-)?(\d+):)?(\d+):(\d+(?:\.\d+)?)", said)
    if match is None:
        raise RecordError(f"sacct printed a time that is not understood: {text[:200]!r}")
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
