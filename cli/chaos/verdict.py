"""What became of each job: whether it ran exactly once, as its own marks and accounting have it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

_MARK: Final = re.compile(r"m\.(\d{1,7})\.(\d{1,10})\.(\d{1,5})\.\w{6}")
"""Name of a mark: number, job id, how often the job was requeued before, and letters that no other has."""

_NAMED: Final = 10


@dataclass(frozen=True, kw_only=True)
class Mark:
    """What a run of a job has left."""

    number: int
    job: int
    restart: int
    ended: bool


@dataclass(frozen=True, kw_only=True)
class Record:
    """What accounting has of a job; one for each time that it was requeued."""

    number: int
    job: int
    state: str


@dataclass
class Submitted:
    """What was submitted."""

    accepted: dict[int, int] = field(default_factory=dict)
    """Number -> job id."""
    times: dict[int, float] = field(default_factory=dict)
    """Number -> seconds after the begin at which it was accepted."""
    unknown: set[int] = field(default_factory=set)
    """Numbers without an answer, or with a refusal: what was cut may have been accepted."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Job ids, by what became of them."""

    once: list[int]
    requeued: list[int]
    """Ran again, and accounting or Slurm's own count says so."""
    lost: list[int]
    """Accepted, and never ran to an end, while nobody says that they failed."""
    twice: list[int]
    """Ran more than once, and nobody says so."""
    unrecorded: list[int]
    """Ran, and accounting does not know."""
    otherwise: dict[str, list[int]]
    """Ended in another way, as accounting says: state -> jobs."""
    waiting: list[int]
    """Still in the queue when the patience was at its end."""

    @property
    def ok(self) -> bool:
        """Whether no job was lost, and none ran twice."""
        return not self.lost and not self.twice and not self.unrecorded

    def as_data(self) -> dict[str, Any]:
        """For JSON: numbers, and the jobs that are wrong."""
        counted = {name: len(getattr(self, name)) for name in ("once", "requeued", "waiting")}
        return {
            **counted,
            "lost": self.lost,
            "twice": self.twice,
            "unrecorded": self.unrecorded,
            "otherwise": {state: len(jobs) for state, jobs in self.otherwise.items()},
        }


def marks_in(listed: str) -> list[Mark]:
    """Marks from lines `NAME SIZE`. The directory is the user's: whatever else is in it is nothing."""
    found = []
    for line in listed.splitlines():
        name, _, size = line.partition(" ")
        if (match := _MARK.fullmatch(name)) and size.isdigit():
            number, job, restart = (int(part) for part in match.groups())
            found.append(Mark(number=number, job=job, restart=restart, ended=int(size) > 0))
    return found


def records_in(listed: str, prefix: str) -> list[Record]:
    """Records from lines `JOB|NAME|STATE` of sacct, of jobs whose names begin so."""
    found = []
    for line in listed.splitlines():
        job, _, rest = line.partition("|")
        name, _, state = rest.rpartition("|")
        number = name.removeprefix(prefix)
        if name.startswith(prefix) and number.isdigit() and job.isdigit() and state:
            found.append(Record(number=int(number), job=int(job), state=state.split()[0]))
    return found


def judge(submitted: Submitted, marks: Iterable[Mark], records: Iterable[Record], queued: Iterable[int]) -> Verdict:
    """What became of each job. `queued`: ids that the queue still has."""
    runs: dict[int, list[Mark]] = {}
    for mark in marks:
        runs.setdefault(mark.job, []).append(mark)
    told: dict[int, list[str]] = {}
    jobs = set(submitted.accepted.values())
    for record in records:
        told.setdefault(record.job, []).append(record.state)
        if record.number in submitted.unknown:  # it was accepted after all
            jobs.add(record.job)
    jobs |= {mark.job for each in runs.values() for mark in each if mark.number in submitted.unknown}
    waiting = set(queued)
    verdict = Verdict(once=[], requeued=[], lost=[], twice=[], unrecorded=[], otherwise={}, waiting=[])
    for job in sorted(jobs):
        _sort(verdict, job, runs.get(job, []), told.get(job, []), is_waiting=job in waiting)
    return verdict


_OPEN: Final = frozenset({"PENDING", "RUNNING", "REQUEUED", "SUSPENDED", "COMPLETING", "RESIZING"})


def _sort(verdict: Verdict, job: int, runs: Sequence[Mark], states: Sequence[str], *, is_waiting: bool) -> None:
    ends = [state for state in states if state not in _OPEN]
    restarts = {mark.restart for mark in runs}
    if len(restarts) < len(runs):  # two runs that both are the first, say
        verdict.twice.append(job)
    elif is_waiting:
        verdict.waiting.append(job)
    elif not any(mark.ended for mark in runs):
        failed = [state for state in ends if state != "COMPLETED"]
        if failed:
            verdict.otherwise.setdefault(failed[-1], []).append(job)
        else:
            verdict.lost.append(job)
    elif not ends:
        verdict.unrecorded.append(job)
    elif len(runs) > 1 or max(restarts) > 0 or len(states) > 1:
        verdict.requeued.append(job)
    else:
        verdict.once.append(job)


def gaps(times: Iterable[float], *, begin: float, end: float, least: float) -> list[tuple[float, float]]:
    """Spans of more than `least` seconds without an acceptance: begin and length, the longest first."""
    points = [begin, *sorted(times), end]
    spans = [(first, later - first) for first, later in pairwise(points) if later - first > least]
    return sorted(spans, key=lambda span: -span[1])


def listed(jobs: Sequence[int]) -> str:
    """Some job ids."""
    more = f" and {len(jobs) - _NAMED} more" if len(jobs) > _NAMED else ""
    return ", ".join(map(str, jobs[:_NAMED])) + more
