"""The one reader of Slurm's records: runs of jobs and their steps as `sacct` prints them.

Where each figure comes from, with `jobacct_gather/linux` as with `/cgroup`:

- CPU time is TotalCPU. The kernel counts it for processes that have ended and were waited for, so it is right for jobs
  shorter than any sampling. What a killed job's processes used is known by sampling only.
- Memory is known by sampling only (JobAcctGatherFrequency, 30 seconds by default): `mem` of TRESUsageInTot, which is
  the sum of the peaks of a step's tasks. That is what `seff` takes, and not MaxRSS, which is the one largest task's.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from images.common.slurm_records import amounts, gpus_in, seconds, size, tres

FIELDS: Final = (
    "JobID", "JobIDRaw", "User", "State", "Start", "End", "ElapsedRaw", "AllocTRES", "AllocCPUS", "NNodes", "TotalCPU",
    "TRESUsageInTot", "Account",
)  # fmt: skip
"""What is asked for, in this order. Only an account may be any text, so it comes last."""

DELIMITER: Final = secrets.token_hex(8)
"""Nobody may guess it: without enforcement users name accounts as they like, with `|` and line breaks."""

UNKNOWN: Final = "(none)"
"""Stands for the account of a job that had none, and for a user whom Slurm does not know by name."""

UNMEASURED: Final = 0.1
"""The part of a job's time in steps that were not measured from which on the whole job counts as not measured."""

LOOKED: Final = 60
"""Seconds after which Slurm has looked at a step more than at its first moment, as often as it looks by default."""

_WAITED_FOR: Final = ("COMPLETED", "FAILED")
"""States of steps that ended by themselves, so that the kernel's count of their processes is whole."""


class RecordError(ValueError):
    """A line that sacct cannot have printed."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step of a job, the batch script among them."""

    start: int
    seconds: int
    cpu_seconds: float | None
    memory: int | None
    """Bytes."""


@dataclass(frozen=True, kw_only=True)
class Run:
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
        """Bytes: the largest sum of the peaks of steps that ran at the same time. None if that is not known."""
        return memory_at_once(self.steps) if self._covers("memory") else None

    def _covers(self, figure: str) -> bool:
        """Whether steps with this figure make up so much of the job that it can stand for all of it."""
        missing = sum(step.seconds for step in self.steps if getattr(step, figure) is None)
        known = any(getattr(step, figure) is not None for step in self.steps)
        return self.end is not None and self.seconds > 0 and known and missing < UNMEASURED * self.seconds


def memory_at_once(steps: Iterable[Step]) -> int:
    """Bytes that steps have had together at most.

    Of many side by side, as scripts start them with `srun ... &`, the largest alone would be the memory of one.
    """
    changes = [change for step in steps for change in _changes(step)]
    at_once = most = 0
    for _, change in sorted(changes):  # what ends goes first, so that steps in a row are not added up
        at_once += change
        most = max(most, at_once)
    return most


def _changes(step: Step) -> list[tuple[int, int]]:
    """When memory is taken and given back."""
    memory = step.memory or 0
    return [(step.start, memory), (step.start + max(step.seconds, 1), -memory)]


def sacct(fields: Sequence[str]) -> list[str]:
    """A call of sacct, whose lines `rows` takes apart. Times are seconds since 1970."""
    shape = ("--noheader", "--parsable2", f"--delimiter={DELIMITER}", "--noconvert")
    return ["env", "SLURM_TIME_FORMAT=%s", "sacct", *shape, f"--format={','.join(fields)}"]


def runs_between(start: datetime, end: datetime, *, whole: bool) -> list[str]:
    """The command line for everybody's runs between two times.

    `whole`: with their steps, also what lies outside of the times. Else jobs that are still running count up to now,
    and only what lies between the times counts.
    """
    period = [f"--starttime=uts{int(start.timestamp())}", f"--endtime=uts{int(end.timestamp())}"]
    return [*sacct(FIELDS), "--allusers", "--duplicates", *([] if whole else ["--allocations", "--truncate"]), *period]


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
    """What sacct printed: each run, with its steps below it. Raises RecordError."""
    return runs_of(rows(lines, FIELDS))


def runs_of(records: Iterable[Mapping[str, str]]) -> list[Run]:
    """The same of rows that have FIELDS, and may have more. Raises RecordError."""
    found: list[tuple[Mapping[str, str], list[Step]]] = []
    for row in records:
        if "." not in row["JobIDRaw"]:
            found.append((row, []))
        elif not found:
            raise RecordError(f"sacct printed a step without its job: {row['JobIDRaw']!r}")
        elif row["Start"].isdecimal():
            found[-1][1].append(_step(row))
    return [_run(row, steps) for row, steps in found]


def _step(row: Mapping[str, str]) -> Step:
    used = tres(row["TRESUsageInTot"])
    cpu_seconds = seconds(row["TotalCPU"])
    elapsed = _number(row["ElapsedRaw"]) or 0
    # Slurm may have looked at the first moment of a step, and never again before it was killed.
    looked = "cpu" in used and (elapsed >= LOOKED or bool(seconds(used["cpu"])))
    # A count of nothing at all is that of a cluster that gathers nothing, or of a node that was lost.
    counted = looked or row["State"].startswith(_WAITED_FOR)
    return Step(
        start=int(row["Start"]),
        seconds=elapsed,
        cpu_seconds=cpu_seconds if cpu_seconds and counted else None,
        memory=_bytes(used.get("mem", "")),
    )


def _run(row: Mapping[str, str], steps: Sequence[Step]) -> Run:
    resources = amounts(row["AllocTRES"])
    return Run(
        job=row["JobID"],
        number=row["JobIDRaw"],
        user=row["User"] or UNKNOWN,
        account=row["Account"] or UNKNOWN,
        state=row["State"],
        start=_number(row["Start"]),
        end=_number(row["End"]),
        seconds=_number(row["ElapsedRaw"]) or 0,
        nodes=_number(row["NNodes"]) or 0,
        cpus=int(resources.get("cpu", _number(row["AllocCPUS"]) or 0)),
        gpus=int(gpus_in(resources)),
        memory=_bytes(tres(row["AllocTRES"]).get("mem", "")) or None,
        steps=tuple(steps),
    )


def _number(text: str) -> int | None:
    """None of nothing, and of Unknown and None, which sacct prints of a time that has not come."""
    return int(text) if text.isdecimal() else None


def _bytes(text: str) -> int | None:
    found = size(text)
    return None if found is None else round(found)
