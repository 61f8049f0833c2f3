"""Memory that an ended job has left, and that another job of its user keeps, counts for that job.

Else a user with two jobs could have as much as the node has: one makes memory, gives it to the other by an open file,
and ends, again and again. The kernel would end anybody's job for it. So what is kept is taken off what the user's jobs
on this node may have: first where they do not need it, then where they do, for which the kernel ends tasks, and where
that is not enough their tasks are ended here.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from images.common.kept_memory import (
    CLOSING_SECONDS,
    ENDED,
    LEAST,
    PROC,
    JobGroup,
    has_processes,
    job_groups,
    kept_bytes,
    locked_by,
    locked_bytes,
    owner_mark,
    socket_bytes,
)
from images.worker import left_cgroups
from images.worker.freeing import close_all_but, has_ended

FREED_SECONDS: Final = 2.0
"""The kernel frees what processes and file systems had a moment after they have gone."""

ROUND_SECONDS: Final = 1.0
"""Between two looks while something is kept. Slurm sets a job's limit anew with each step."""

LONGEST_ROUND: Final = 30.0
"""The kernel takes its time to bring a job below a new limit."""

ROOM_FOR_STEPS: Final = 4 * 2**20
"""Bytes that a job keeps for its slurmstepds above what they use: without them nobody would tell of its end."""


@dataclass(frozen=True, kw_only=True)
class Account:
    """A job that runs, in bytes."""

    own: int
    """Its limit by Slurm."""
    used: int
    least: int
    """What its slurmstepds need."""


def share_out(owed: int, accounts: Sequence[Account]) -> tuple[list[int], int]:
    """The limits of the jobs without what they owe together, and the bytes that are more than they have."""
    left, limits = owed, [job.own for job in accounts]
    # First what a job has no use for, then all but what tells of its end.
    for kept in ([max(job.used, job.least) for job in accounts], [job.least for job in accounts]):
        for number, least in enumerate(kept):
            part = max(0, min(left, limits[number] - least))
            limits[number] -= part
            left -= part
    return limits, left


class KeptMemory:
    """The cgroups of ended jobs, by what is still counted there."""

    def __init__(self, mount: Path, log: Callable[[str], None], now: Callable[[], float] = time.monotonic) -> None:
        """`mount`: where cgroups are."""
        self._mount = mount
        self._log = log
        self._now = now
        self._ending: dict[Path, float] = {}
        """Since when all processes have gone."""
        self._owing = any(group.ended for group in job_groups(mount))
        self._round: tuple[int, float] | None = None
        """The process that goes through the jobs, and when it began."""
        self._next = now()
        self._no_process = False
        """The last round could not begin."""

    def begin(self, group: Path, uid: int) -> None:
        """A step of a job has come: its cgroup will be there until `end`. Raises OSError."""
        (group / owner_mark(uid)).mkdir(exist_ok=True)
        for mark in group.glob(owner_mark("*")):  # slurmctld has lost its state, and gives a number once more
            if mark.name != owner_mark(uid):
                mark.rmdir()
                left = kept_bytes(group) // 2**20
                self._log(f"{group.name} is user {uid}'s now, and has {left} MiB of an earlier one of that number")
        with contextlib.suppress(FileNotFoundError):  # Slurm has started the job again
            (group / ENDED).rmdir()

    def end(self, group: Path) -> bool:
        """End what is left of a job that has ended. Returns whether nothing is to be waited for."""
        if (group / ENDED).is_dir():
            self.look()
            return self._round is None and not self._no_process
        left_cgroups.end(group)
        if not group.exists():
            return True
        if has_processes(group):
            return False
        kept = kept_bytes(group)
        owed = kept >= LEAST and any(group.glob(owner_mark("*")))
        if owed:
            since = self._ending.setdefault(group, self._now())
            if self._now() - since < FREED_SECONDS:
                return False
            _mark_ended(group)
            self._log(f"{group.name} has ended, and {kept // 2**20} MiB of its memory are kept by others")
            self._owing, self._next = True, self._now()
            self.look()
        self._ending.pop(group, None)
        return not owed and left_cgroups.remove(group)

    def wakes_in(self) -> float | None:
        """Seconds until `look` has something to do; None: nothing is kept."""
        return max(0.05, self._next - self._now()) if self._owing else None

    def look(self) -> None:
        """Begin a round, if it is time for one, in a process of its own: the kernel may let it wait."""
        if self._round is not None:
            pid, began = self._round
            if not has_ended(pid):  # or it is a child of who served before this process did
                if self._now() - began > LONGEST_ROUND:
                    os.kill(pid, signal.SIGKILL)
                return
            self._round = None
        if not self._owing or self._now() < self._next:
            return
        self._owing = any(group.ended for group in job_groups(self._mount))
        self._next = self._now() + ROUND_SECONDS
        try:
            pid = os.fork()
        except OSError as error:  # users have no limit of processes but the pod's: the warden must not end for it
            if not self._no_process:
                self._log(f"what ended jobs have left counts for nobody: no process for it: {error.strerror}")
            self._no_process = True
            return
        if pid == 0:
            try:
                close_all_but()
                settle(self._mount, self._log)
            except Exception as error:  # noqa: BLE001  (nobody else would say so)
                self._log(f"what ended jobs have left is not counted: {type(error).__name__}: {error}")
            finally:
                os._exit(0)
        self._round, self._no_process = (pid, self._now()), False


def _mark_ended(group: Path) -> None:
    """Raises OSError.

    The kernel counts what it needs for another cgroup in the one above, which may be full: buffers of a job's sockets
    count for it as long as somebody has these, and so may be filled after its end.
    """
    try:
        (group / ENDED).mkdir(exist_ok=True)
    except OSError:
        (group / "memory.max").write_text("max")  # what is kept counts for the user's other jobs, how much it ever is
        (group / ENDED).mkdir(exist_ok=True)


def settle(mount: Path, log: Callable[[str], None], proc: Path = PROC) -> None:
    """Take what ended jobs have left off what their users' other jobs may have, and give it back when it has gone.

    Files that a job has read first, and that another user's process has locked, count for the first job to the kernel.
    So of what is locked a user owes only what others' processes have not.
    """
    owed, locked, here = Counter[int](), Counter[int](), dict[int, list[JobGroup]]()
    for group in job_groups(mount):
        if not group.ended and has_processes(group.path):
            here.setdefault(group.uid, []).append(group)
        elif not group.ended:
            continue  # it has no step just now (`salloc`): it keeps nothing, and Slurm says its limit with the next
        elif (kept := kept_bytes(group.path)) >= LEAST:
            owed[group.uid] += kept - _closing(group.path)
            locked[group.uid] += locked_bytes(group.path)
        else:
            left_cgroups.remove(group.path)
    by = locked_by(proc) if locked.total() else Counter[int]()
    for uid, groups in here.items():
        owed[uid] -= min(locked[uid], by.total() - by[uid])
        limits, more = share_out(owed[uid], [_account(group.path) for group in groups])
        for group, limit in zip(groups, limits, strict=True):
            _limit(group.path, limit, log)
        if more >= LEAST:
            for group in groups:
                _end_tasks(group.path, log)


def _closing(group: Path) -> int:
    """Bytes in connections that the kernel may still be closing: the other end that takes nothing may be anybody's."""
    with contextlib.suppress(OSError):
        if time.time() - (group / ENDED).stat().st_mtime < CLOSING_SECONDS:
            return socket_bytes(group)
    return 0


def _account(group: Path) -> Account:
    """What the job's own cgroup says is ours by now, what its steps' say is Slurm's.

    Before a step has a limit there is only the first: a job never gets more by that.
    """
    steps = [path for path in group.glob("step_*") if path.is_dir()]
    said = [path / "user/memory.max" for path in steps if (path / "user/memory.max").exists()]
    limits = [limit for limit in map(_number, said or [group / "memory.max"]) if limit is not None]
    most = _number(group.parent / "memory.max") or 2**62
    return Account(
        own=min(max(limits, default=most), most),
        used=_number(group / "memory.current") or 0,
        least=ROOM_FOR_STEPS + sum(_number(path / "slurm/memory.current") or 0 for path in steps),
    )


def _number(file: Path) -> int | None:
    with contextlib.suppress(OSError):
        text = file.read_text(encoding="ascii").strip()
        return int(text) if text.isdigit() else None
    return None


def _limit(group: Path, limit: int, log: Callable[[str], None]) -> None:
    limit -= limit % 4096  # as the kernel does
    before = _number(group / "memory.max")
    if before == limit or (before is None and limit >= (_number(group.parent / "memory.max") or 2**62)):
        return
    log(f"{group.name} may have {limit // 2**20} MiB now, for what ended jobs of its user have left")
    with contextlib.suppress(OSError):  # it has just ended
        (group / "memory.max").write_text(str(limit))


def _end_tasks(group: Path, log: Callable[[str], None]) -> None:
    if has_processes(group):
        log(f"{group.name}: ending its tasks, as its user's ended jobs have left more than it may have")
    for tasks in group.glob("step_*/user/cgroup.kill"):
        with contextlib.suppress(OSError):
            tasks.write_text("1")
