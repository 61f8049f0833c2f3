"""Processes of this pod, read from /proc."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from images.common.steps import PROC, is_step

_STEP: Final = r"slurmstepd: \[(\d+)\."
"""How slurmstepd names itself: `slurmstepd: [17.batch]`, `[17.0]`, `[17.extern]`."""
_TITLE: Final = 64
"""Bytes of a title that are read: a process may have any part of its memory shown as its title, of any size."""


def processes(proc: Path = PROC) -> Iterator[tuple[int, int]]:
    """Number and process group of all that run. Raises OSError.

    What has ended and only waits to be asked how does not run; the first thread of a process may end before the others.
    """
    for entry in os.listdir(proc):  # noqa: PTH208  (a third of the time of `iterdir`, and this runs every 30 s)
        if not entry.isdigit():
            continue
        try:
            file = os.open(f"{proc}/{entry}/stat", os.O_RDONLY | os.O_CLOEXEC)  # half the time of open()
            try:
                text = os.read(file, 4096).decode(errors="replace")
            finally:
                os.close(file)
            fields = text.rpartition(") ")[2].split()  # proc_pid_stat(5)
            if fields[0] not in "ZX" or int(fields[17]) > 1:
                yield int(entry), int(fields[2])
        except (OSError, IndexError, ValueError):
            continue


def jobs_here(proc: Path = PROC) -> set[str]:
    """Numbers of the jobs with a step in this pod; `?` for a step that does not say whose it is."""
    return {_job_of(pid, proc) for pid, _ in processes(proc) if is_step(pid, proc)} - {""}


def _job_of(step: int, proc: Path) -> str:
    """The job's number of a slurmstepd; empty where it has just ended."""
    try:
        with (proc / str(step) / "cmdline").open("rb", buffering=0) as file:
            title = file.read(_TITLE).decode(errors="replace")
    except OSError:
        return ""
    match = re.match(_STEP, title)
    return match[1] if match else "?"
