"""Figures of jobs where they have no cgroups: sums over the processes below each job's slurmstepd.

Only what the kernel shows to every user of the node is read, and never a page of a process of a user's, at which a look
may wait for as long as that user likes. What is less exact than with cgroups: docs/usage.md.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from images.common.steps import user_of
from images.worker.job_metrics.figures import Figures

_PROC: Final = Path("/proc")
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_STEPD: Final = "slurmstepd"
_TITLE: Final = re.compile(rb"slurmstepd: \[(\d+)\.")
_TITLE_BYTES: Final = 64


@dataclass(frozen=True, slots=True)
class _Process:
    pid: int
    parent: int
    name: str
    start: str
    user_ticks: int
    """Those of children that were waited for are among them."""
    system_ticks: int


@dataclass(slots=True)
class _Known:
    """CPU time of a job in ticks, user and system: of steps that have ended, and of those that were last seen."""

    ended: tuple[int, int] = (0, 0)
    steps: dict[tuple[int, str], tuple[int, int]] = field(default_factory=dict)


class JobProcesses:
    """Those of one node. `memory`: bytes that all jobs of the node have together, which is all that limits a job."""

    def __init__(self, memory: int, proc: Path = _PROC) -> None:
        self._memory = memory
        self._proc = proc
        self._known: dict[str, _Known] = {}

    def read(self) -> Mapping[str, Figures]:
        """By the job's number. Raises OSError."""
        children: dict[int, list[_Process]] = {}
        here = {process.pid: process for process in self._all()}
        for process in here.values():  # whose parent has ended meanwhile is at the top
            children.setdefault(process.parent if process.parent in here else 0, []).append(process)
        steps: dict[str, list[tuple[_Process, list[_Process]]]] = {}
        waiting = list(children.get(0, ()))
        while waiting:
            process = waiting.pop()
            below = children.get(process.pid, [])
            job = self._job_of(process)
            if job is None:
                waiting += below
            else:  # what a step's user calls slurmstepd is below a real one, and belongs to that
                steps.setdefault(job, []).append((process, _tree(process, children)))
        self._known = {job: self._known.get(job, _Known()) for job in steps}
        return {job: self._figures(job, found) for job, found in sorted(steps.items())}

    def _all(self) -> Iterable[_Process]:
        for name in os.listdir(self._proc):  # noqa: PTH208  (a tenth of the time, for thousands)
            if name.isdigit():
                try:
                    with open(f"{self._proc}/{name}/stat", "rb", buffering=0) as file:  # noqa: PTH123
                        before, _, after = file.read(2048).decode(errors="replace").rpartition(")")
                except OSError:
                    continue
                rest = after.split()
                yield _Process(
                    int(name),
                    int(rest[1]),
                    before.partition("(")[2],
                    rest[19],
                    int(rest[11]) + int(rest[13]),
                    int(rest[12]) + int(rest[14]),
                )

    def _job_of(self, process: _Process) -> str | None:
        """The job of a slurmstepd; None of anything else. The title of a user's process is not looked at."""
        if process.name != _STEPD or user_of(process.pid, self._proc) != 0:
            return None
        try:
            with (self._proc / str(process.pid) / "cmdline").open("rb", buffering=0) as file:
                match = _TITLE.match(file.read(_TITLE_BYTES))
        except OSError:
            return None
        return match[1].decode() if match else None

    def _figures(self, job: str, steps: list[tuple[_Process, list[_Process]]]) -> Figures:
        known = self._known[job]
        now = {}
        for step, below in steps:
            tree = [step, *below]
            key = step.pid, step.start
            before = known.steps.get(key, (0, 0))  # a child that nobody waited for takes its time along
            now[key] = (
                max(before[0], sum(one.user_ticks for one in tree)),
                max(before[1], sum(one.system_ticks for one in tree)),
            )
        gone = [ticks for key, ticks in known.steps.items() if key not in now]
        known.ended = _sum([known.ended, *gone])
        known.steps = now
        user, system = _sum([known.ended, *now.values()])
        processes = [one.pid for step, below in steps for one in (step, *below)]
        resident, of_files = self._memory_of(processes)
        users = (user_of(one.pid, self._proc) for _, below in steps for one in below)
        return Figures(
            user_seconds=user / _TICKS,
            system_seconds=system / _TICKS,
            cpus=_cpus(below for _, below in steps),
            rss=resident - of_files,
            cache=of_files,
            shmem=0,
            used=resident,
            total=self._memory,
            failures=0,
            uid=next((uid for uid in users if uid), None),
        )

    def _memory_of(self, pids: Iterable[int]) -> tuple[int, int]:
        """Bytes that are in memory, and how many of them are of files or shared."""
        resident = shared = 0
        for pid in pids:
            try:
                with open(f"{self._proc}/{pid}/statm", "rb", buffering=0) as file:  # noqa: PTH123
                    pages = file.read(256).split()
            except OSError:
                continue
            if len(pages) > 2:
                resident += int(pages[1]) * _PAGE
                shared += int(pages[2]) * _PAGE
        return resident, shared


def _tree(top: _Process, children: Mapping[int, list[_Process]]) -> list[_Process]:
    """All below, without the top."""
    found = list(children.get(top.pid, ()))
    for process in found:  # it grows meanwhile
        found += children.get(process.pid, ())
    return found


def _sum(pairs: Iterable[tuple[int, int]]) -> tuple[int, int]:
    first, second = 0, 0
    for one, other in pairs:
        first, second = first + one, second + other
    return first, second


def _cpus(trees: Iterable[list[_Process]]) -> int:
    """How many CPUs the first processes of the steps may use: slurmstepd bound them; they can undo that."""
    allowed: set[int] = set()
    for tree in trees:
        for process in tree[:64]:
            try:
                allowed |= os.sched_getaffinity(process.pid)
            except OSError:
                continue
    return len(allowed)
