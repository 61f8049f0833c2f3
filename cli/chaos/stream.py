"""A stream of small jobs, which a user submits from a login node; and what became of each.

Each leaves a mark when it runs. By the marks and accounting is told whether it ran exactly once.
"""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from cli.errors import Failure
from cli.kubectl.client import Kubectl, complaint
from cli.kubectl.pods import LEAVING, in_jail, pod_of
from cli.stack import Stack
from slurm.names import LOGIN

_MARK: Final = re.compile(r"m\.(\d{1,7})\.(\d{1,10})\.(\d{1,5})\.\w{6}")
"""Name of a mark: number, job id, how often the job was requeued before, and letters that no other has."""

GAP: Final = 5.0
"""Seconds without an acceptance that are told."""

_NAMED: Final = 10

PATIENCE: Final = 20
"""Seconds for one submission; sbatch alone would try for minutes."""

_TOGETHER: Final = 3
"""Submissions by one `kubectl exec`, which takes as long as they do."""

_LONGEST: Final = 3
"""Seconds that a job sleeps at most."""

_MOST_LISTED: Final = 20_000_000
"""Bytes of the list of marks that are read: the directory is the user's."""

_OPEN: Final = frozenset({"PENDING", "RUNNING", "REQUEUED", "SUSPENDED", "COMPLETING", "RESIZING"})


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


def gaps(times: Iterable[float], end: float) -> list[tuple[float, float]]:
    """Spans of more than GAP seconds without an acceptance: begin and length, the longest first."""
    points = [0.0, *sorted(times), end]
    spans = [(first, later - first) for first, later in pairwise(points) if later - first > GAP]
    return sorted(spans, key=lambda span: -span[1])


def listed(jobs: Sequence[int]) -> str:
    """Some job ids."""
    more = f" and {len(jobs) - _NAMED} more" if len(jobs) > _NAMED else ""
    return ", ".join(map(str, jobs[:_NAMED])) + more


class Jail:
    """Commands of a user in the jail of a login node, whichever takes sessions."""

    def __init__(self, kubectl: Kubectl, stack: Stack, user: str) -> None:
        self._kubectl = kubectl
        self._namespace = stack.config.cluster.namespace
        account = stack.config.users[user]
        self._who = f"{account.uid}:{account.uid if account.gid is None else account.gid}"
        self._environment = (f"HOME=/home/{user}", f"USER={user}", "PATH=/usr/local/bin:/usr/bin:/bin")
        self._node = ""

    def run(self, command: str, *, seconds: float = 60) -> tuple[int, str, str]:
        """Exit status, output and complaint of a line of shell; another node the next time where it fails."""
        node = self._node or self._find()
        if not node:
            return 1, "", "no login node takes sessions"
        words = in_jail(self._who, "/usr/bin/env", "-i", *self._environment, "/bin/sh", "-c", f"cd && {command}")
        place = ("exec", "-n", self._namespace, node, "-c", "sshd", "--")
        done = self._kubectl.run(*place, *words, check=False, seconds=seconds)
        self._node = node if done.returncode == 0 else ""
        return done.returncode, done.stdout, complaint(done) if done.returncode else ""

    def _find(self) -> str:
        try:
            found = self._kubectl.items("pod", "-n", self._namespace, "-l", f"app.kubernetes.io/component={LOGIN}")
        except Failure:
            return ""
        return next((pod.name for pod in map(pod_of, found) if pod.ready and pod.phase != LEAVING), "")


class Stream:
    """Submits until it is stopped; what nobody answered is remembered too."""

    def __init__(self, jail: Jail, *, token: str, seed: int, rate: float, options: Sequence[str] = ()) -> None:
        """`rate`: jobs in a second at most. `options`: of sbatch."""
        self.prefix = f"chaos-{token}-"
        self.submitted = Submitted()
        self._directory = f".slurmstack-chaos-{token}"
        self._jail = jail
        self._rate = rate
        self._options = " ".join(options)
        self._chance = random.Random(seed)  # noqa: S311  it is to be repeated
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._go, daemon=True)
        self._begun = 0.0

    def begin(self) -> None:
        """Submit one job, to see whether that works at all, and then more beside what else is done. Raises Failure."""
        code, _, said = self._jail.run(f"mkdir -m 700 {self._directory}")
        if code != 0:
            raise Failure(f"the user cannot make a directory for marks: {said}")
        self._begun = time.monotonic()
        said = self._submit([0])
        if 0 not in self.submitted.accepted:
            raise Failure(f"no job is accepted before anything was broken: {said}")
        self._thread.start()

    @property
    def seconds(self) -> float:
        """Since the begin."""
        return time.monotonic() - self._begun

    def stop(self) -> None:
        """No more jobs."""
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _go(self) -> None:
        number = 1
        while not self._over.is_set():
            before = time.monotonic()
            self._submit(range(number, number + _TOGETHER))
            number += _TOGETHER
            self._over.wait(max(0.0, _TOGETHER / self._rate - (time.monotonic() - before)))

    def _submit(self, numbers: Sequence[int]) -> str:
        self.submitted.unknown.update(numbers)
        lines = [f"job=$({self._sbatch(number)}) && echo {number} $job" for number in numbers]
        _, printed, said = self._jail.run("; ".join(lines), seconds=len(lines) * (PATIENCE + 2) + 5)
        for line in printed.splitlines():
            number, _, job = line.partition(" ")
            if number.isdigit() and job.isdigit() and int(number) in self.submitted.unknown:
                self.submitted.unknown.discard(int(number))
                self.submitted.accepted[int(number)] = int(job)
                self.submitted.times[int(number)] = self.seconds
        return said

    def _sbatch(self, number: int) -> str:
        mark = f"$HOME/{self._directory}/m.{number}.$SLURM_JOB_ID.${{SLURM_RESTART_COUNT:-0}}.XXXXXX"
        script = f"f=$(mktemp {mark}) && sleep {self._chance.uniform(0, _LONGEST):.1f} && echo end >$f"
        what = f"--parsable --job-name={self.prefix}{number} --requeue --ntasks=1 --time=5 --mem=16 --output=/dev/null"
        return f"timeout -k 1 {PATIENCE} sbatch {what} {self._options} --wrap '{script}'"

    def marks(self) -> list[Mark]:
        """What jobs have left. Raises Failure where it cannot be read for a minute."""
        until = time.monotonic() + 60
        while True:
            found = f"find {self._directory} -maxdepth 1 -name 'm.*' -printf '%f %s\\n' | head -c {_MOST_LISTED}"
            code, printed, said = self._jail.run(found)
            if code == 0:
                return marks_in(printed)
            if time.monotonic() > until:
                raise Failure(f"the jobs' marks cannot be read: {said}")
            time.sleep(1)

    def clean(self) -> None:
        """Remove the marks."""
        self._jail.run(f"rm -rf {self._directory}")
