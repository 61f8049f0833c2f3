"""Processes of this pod, read from /proc."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from images.common.steps import PROC, is_step

_STEP: Final = r"slurmstepd: \[(\d+)\."
"""How slurmstepd names itself: `slurmstepd: [17.batch]`, `[17.0]`, `[17.extern]`."""
_TITLE: Final = 64
"""Bytes of a title that are read: a process may have any part of its memory shown as its title, of any size."""
_KERNEL_THREAD: Final = 0x00200000
"""PF_KTHREAD (include/linux/sched.h)."""


@dataclass(frozen=True, kw_only=True)
class Process:
    """One process, as its line in /proc/PID/stat has it."""

    pid: int
    parent: int
    group: int
    state: str
    """The kernel's letter: R, S, D (cannot be interrupted), Z (has ended, nobody asked for its result), ..."""
    start: int
    """When it began, in clock ticks since the machine's start: with the number it names a process for good."""
    comm: str
    """First 15 characters of its program's name, or whatever it calls itself: for people only."""
    ticks: int
    """Processor time that it has used, in clock ticks."""
    is_kernel_thread: bool
    threads: int = 1

    @property
    def has_ended(self) -> bool:
        """Whether only its result is left. The first thread of a process may end before the others."""
        return self.state in "ZX" and self.threads <= 1

    @property
    def key(self) -> str:
        """Numbers are used again; a number with its start is not."""
        return f"{self.pid}:{self.start}"


def read_stat(pid: int, proc: Path = PROC) -> str:
    """The line of this process. Raises OSError if there is none (any more)."""
    file = os.open(f"{proc}/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)  # half the time of open()
    try:
        return os.read(file, 4096).decode(errors="replace")
    finally:
        os.close(file)


def parse(pid: int, text: str) -> Process | None:
    """proc_pid_stat(5); None for what is not like it."""
    comm, _, rest = text.partition("(")[2].rpartition(") ")
    fields = rest.split()
    try:
        return Process(
            pid=pid,
            parent=int(fields[1]),
            group=int(fields[2]),
            state=fields[0],
            start=int(fields[19]),
            comm=comm,
            ticks=int(fields[11]) + int(fields[12]),
            is_kernel_thread=bool(int(fields[6]) & _KERNEL_THREAD),
            threads=int(fields[17]),
        )
    except (IndexError, ValueError):
        return None


def process(pid: int, proc: Path = PROC) -> Process | None:
    """The process of this number; None if there is none, or its line cannot be read."""
    try:
        return parse(pid, read_stat(pid, proc))
    except OSError:
        return None


def processes(proc: Path = PROC, *, odd: list[int] | None = None) -> Iterator[Process]:
    """All processes that there are. `odd` gets the numbers of those whose line is not understood. Raises OSError."""
    for entry in os.listdir(proc):  # noqa: PTH208  (a third of the time of `iterdir`, and this runs every 30 s)
        if not entry.isdigit():
            continue
        try:
            found = parse(int(entry), read_stat(int(entry), proc))
        except OSError:
            continue  # it has just ended
        if found is not None:
            yield found
        elif odd is not None:
            odd.append(int(entry))


def lives(pid: int, start: int, proc: Path = PROC) -> bool:
    """Whether exactly this process still runs. One that has ended and only waits to be asked does not."""
    found = process(pid, proc)
    return found is not None and found.start == start and not found.has_ended


def jobs_here(proc: Path = PROC) -> set[str]:
    """Numbers of the jobs with a step in this pod; `?` for a step that does not say whose it is."""
    steps = [found.pid for found in processes(proc) if not found.has_ended and is_step(found.pid, proc)]
    return {job_of(pid, proc) for pid in steps} - {""}


def job_of(step: int, proc: Path = PROC) -> str:
    """The job's number of a slurmstepd; `?` where it does not say whose it is, empty where it has just ended."""
    try:
        with (proc / str(step) / "cmdline").open("rb", buffering=0) as file:
            title = file.read(_TITLE).decode(errors="replace")
    except OSError:
        return ""
    match = re.match(_STEP, title)
    return match[1] if match else "?"
