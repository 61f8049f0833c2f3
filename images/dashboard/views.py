"""What the page shows, from Slurm's records: nodes by pool, the queue by partition, jobs."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal

from images.common.slurm_jobs import RUNNING, Job
from images.common.slurm_records import Has, NodeRecord

LONGEST = 200
"""Letters of a name or a reason that are shown; Slurm takes far longer ones."""


def clean(shown: object) -> object:
    """A value; text of a user as one in which nothing hides or turns the order of letters around, to be escaped."""
    if not isinstance(shown, str) or (len(shown) <= LONGEST and shown.isascii() and shown.isprintable()):
        return shown  # nearly all, and 10,000 jobs have many
    text = "".join(
        "\N{REPLACEMENT CHARACTER}" if unicodedata.category(letter)[0] == "C" else letter
        for letter in shown[: LONGEST + 1]
    )
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def duration(seconds: float) -> str:
    """As `4 min` or `2 d 3 h`: at most two units, rounded down."""
    minutes, rest = divmod(max(0, int(seconds)), 60)
    units = (minutes // 1440, "d"), (minutes // 60 % 24, "h"), (minutes % 60, "min")
    first = next((number for number, (count, _) in enumerate(units) if count), None)
    if first is None:
        return f"{rest} s"
    return " ".join(f"{count} {unit}" for count, unit in units[first : first + 2] if count)


def moment(seconds: float) -> str:
    """A time in UTC, to the minute."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


_BASES: Final = ("DOWN", "ALLOCATED", "MIXED", "IDLE")
_MADE_HOW: Final = frozenset({"CLOUD", "DYNAMIC_NORM", "DYNAMIC_FUTURE"})
"""Not of the moment."""

_OWN_DOING: Final = frozenset(
    {"Dependency", "DependencyNeverSatisfied", "JobHeldUser", "JobHeldAdmin", "BeginTime", "JobArrayTaskLimit"}
)
"""Reasons for which a job waits because somebody wanted it so: nobody can be faster for it."""


@dataclass(frozen=True, kw_only=True)
class Node(NodeRecord):
    """A node."""

    is_off = Has("POWERED_DOWN", "POWERING_DOWN", "POWERING_UP")
    """Whether it has no machine, as of an elastic pool."""

    @property
    def kind(self) -> Literal["idle", "busy", "drained", "down", "other"]:
        """What its tile looks like. It says the state itself, too."""
        states = self.states
        if states & {"DOWN", "FAIL", "FAILING", "ERROR", "UNKNOWN"} or (self.is_silent and not self.is_off):
            return "down"
        if self.is_drained:
            return "drained"
        if states & {"ALLOCATED", "MIXED", "COMPLETING"}:
            return "busy"
        return "other" if states & {"RESERVED", "MAINT"} or "IDLE" not in states else "idle"

    @property
    def state(self) -> str:
        """Slurm's words."""
        first = [base for base in _BASES if base in self.states]
        return ", ".join([*first, *sorted(self.states - _MADE_HOW - {*first})]).lower().replace("_", " ")

    @property
    def needs_somebody(self) -> bool:
        """Whether it is out of service."""
        return self.kind in {"drained", "down"}


@dataclass(frozen=True, kw_only=True)
class Queue:
    """What waits and runs in one partition. Each task of a job array counts, as in Slurm's own figures."""

    partition: str
    nodes: int
    running: int
    pending: int
    held: int
    """Those of `pending` that wait for a dependency, a time, or to be released."""
    longest: str
    """Waiting time of those that are not held."""


def pools(found: Iterable[Node]) -> dict[str, list[Node]]:
    """Nodes by the pool of the stack file, after which they are called, and their numbers."""
    by_pool: dict[str, list[Node]] = {}
    for node in sorted(found, key=lambda node: (len(node.name), node.name)):
        by_pool.setdefault(node.name.rpartition("-")[0] or node.name, []).append(node)
    return dict(sorted(by_pool.items()))


def queues(jobs: Iterable[Job], found: Sequence[Node], now: float) -> list[Queue]:
    """One row for each partition. A job that may run in several counts in each."""
    by_partition: dict[str, list[Job]] = {name: [] for node in found for name in node.partitions}
    for job in jobs:
        for name in job.partitions:
            by_partition.setdefault(name, []).append(job)
    return [_queue(name, rows, found, now) for name, rows in sorted(by_partition.items())]


def _queue(name: str, jobs: Sequence[Job], found: Sequence[Node], now: float) -> Queue:
    pending = [job for job in jobs if job.waits]
    waits = [now - job.eligible for job in pending if job.eligible is not None and _waits_for_turn(job, now)]
    return Queue(
        partition=name,
        nodes=sum(name in node.partitions for node in found),
        running=sum(job.base_state == RUNNING for job in jobs),
        pending=sum(job.tasks for job in pending),
        held=sum(job.tasks for job in pending if not _waits_for_turn(job, now)),
        longest=duration(max(waits)) if waits else "-",
    )


def _waits_for_turn(job: Job, now: float) -> bool:
    return job.reason not in _OWN_DOING and job.eligible is not None and job.eligible <= now
