"""What a job's user has left on the node: processes, files in /tmp and /dev/shm, memory and queues of the kernel.

slurmd ends what descends from the job's steps. A process that made itself a daemon does not any more (the node has no
cgroups of its own to keep it in), and memory in /dev/shm belongs to nobody's process. Only what is older than the
moment `before` is touched, so that a job of the same user that starts meanwhile loses nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import signal
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Final

from images.common.steps import is_step, user_of
from images.common.wait import Clock
from images.health.proc import Process, lives, processes

PLACES: Final = (Path("/tmp"), Path("/dev/shm"), Path("/dev/mqueue"))

IPC: Final = {"shm": "shmid", "msg": "msqid", "sem": "semid"}
"""System V's kinds of objects, and what /proc/sysvipc calls their numbers."""

PROTECTED: Final = frozenset({0, 950, 64030, 65534})
"""root, munge, slurm and nobody: their processes and files here are not a job's, or not only."""

TERM_SECONDS: Final = 0.5
"""Between asking a process to end and ending it. The job itself had Slurm's KillWait for that."""
KILL_SECONDS: Final = 1.0

_DEPTH: Final = 64
"""Levels of directories that are open at a time. What lies deeper is moved up first."""
_MOST_ENTRIES: Final = 10_000
"""So many are looked at in one place for one of the user's: with more, something may be left."""
_AT_ONCE: Final = 64
"""Names that are in memory at a time, for each level: a user makes millions, and this is in no job's limit."""
_MOST_MOVED: Final = 1000
"""Names of what lay too deep that are in memory at a time, for the same reason."""
_PASSES: Final = 3
"""Through all of it, while each removes something: what is removed may make a file system pass over others. Not through
each directory: whoever goes on making files at each level would have it done three times more for each."""
_SECONDS: Final = 600.0
"""So long one removal goes on, which is in no job's limit. A million files take a minute."""
_SECONDS_OF_OTHERS: Final = 60.0
"""The same for what an earlier epilog has left: another job of its user may go on making files there."""
_NO_USER: Final = 2**32 - 2
"""A user's number that nobody has."""
_ENTER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, kw_only=True)
class Moment:
    """A point in time on the clocks that files and processes are dated by."""

    seconds: float
    """Since 1970: files."""
    ticks: float
    """Clock ticks since the machine's start: processes."""


EVER: Final = Moment(seconds=float("inf"), ticks=float("inf"))


def now() -> Moment:
    """This moment."""
    return Moment(seconds=time.time(), ticks=time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))


def left_processes(uid: int, before: Moment, proc: Path) -> list[Process]:
    """The user's processes that belong to no step."""
    every = {found.pid: found for found in processes(proc)}

    known: dict[int, bool] = {}

    def in_step(found: Process) -> bool:
        """Whether it descends from a step. Each process is asked once: a user may have nested thousands."""
        way = []
        parent = every.get(found.parent)
        while parent is not None and parent.pid not in known:
            known[parent.pid] = False  # which also ends a circle of records that were read at different moments
            way.append(parent.pid)
            if is_step(parent.pid, proc):
                known[parent.pid] = True
                break
            parent = every.get(parent.parent)
        answer = parent is not None and known[parent.pid]
        known.update(dict.fromkeys(way, answer))
        return answer

    return [
        found
        for found in every.values()
        if not found.has_ended and found.start <= before.ticks and user_of(found.pid, proc) == uid
        if not in_step(found)
    ]


def end_processes(
    left: list[Process],
    proc: Path,
    clock: Clock,
    kill: Callable[[int, int], None] = os.kill,
) -> list[Process]:
    """End processes, politely first. Returns those that do not end."""
    for number, seconds in ((signal.SIGTERM, TERM_SECONDS), (signal.SIGKILL, KILL_SECONDS)):
        for found in left:
            if lives(found.pid, found.start, proc):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    kill(found.pid, number)
        deadline = clock.now() + seconds
        while left := [found for found in left if lives(found.pid, found.start, proc)]:
            if clock.now() >= deadline:
                break
            clock.sleep(0.02)
    return left


def sweep(uid: int) -> None:
    """End all that the user runs in this pod, in one call: what forks without a pause outruns every list of processes.

    The kernel's kill(2) of all reaches those that the caller may signal, and nothing is forked while it goes through
    them. So this process, which must be root's and have one thread, is the user for that moment; its other numbers
    are such that the user cannot signal it back, and that it reaches nobody else. Raises ValueError for root, of whom
    that would be everything.
    """
    if uid == 0:
        raise ValueError("root's processes are the system's")
    os.setresuid(_NO_USER, uid, 0)
    try:
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
    finally:
        os.setresuid(0, 0, 0)


def has_files(uid: int, places: tuple[Path, ...] = PLACES) -> bool:
    """Whether something of the user lies there, or there is too much to tell."""
    for place in places:
        with contextlib.suppress(OSError), os.scandir(place) as entries:
            for number, entry in enumerate(entries):
                if number >= _MOST_ENTRIES:
                    return True
                with contextlib.suppress(FileNotFoundError):  # somebody makes and removes names all the time
                    if entry.stat(follow_symlinks=False).st_uid == uid:
                        return True
    return False


def remove_files(uid: int, before: Moment, places: tuple[Path, ...] = PLACES) -> int:
    """Remove the user's files. Directories of others are not entered, and other file systems neither.

    Returns how many entries were removed.
    """
    removed = 0
    for place in places:
        with contextlib.suppress(OSError):
            removed += _empty_whole(os.open(place, _ENTER), uid, before.seconds)
    return removed


def remove_tree(directory: Path, *, alone: bool = False) -> int:
    """Remove a directory with all that is in it, whoever it belongs to. Returns how many entries were removed.

    `alone`: not where another process is at it.
    """
    removed = 0
    with contextlib.suppress(OSError):
        top = os.open(directory, _ENTER)
        try:
            fcntl.flock(top, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if alone:
                os.close(top)
                return 0
        removed = _empty_whole(top, None, float("inf"), _SECONDS_OF_OTHERS if alone else _SECONDS)
        directory.rmdir()
    return removed


@dataclass(frozen=True, kw_only=True)
class _Removal:
    """What is removed, and where what is too deep waits for its turn."""

    uid: int | None
    """None: whoever it belongs to."""
    before: float
    top: int
    """The directory that is emptied."""
    moved: list[str]
    """Names in it of what lay too deep."""
    until: float
    """By the monotonic clock: what is left then, is left."""
    entered: set[tuple[int, int]] = field(default_factory=set)
    """Directories to come back to, by device and inode: what was removed in them has made them newer than `before`."""

    @property
    def is_late(self) -> bool:
        """Whether it has gone on for too long."""
        return time.monotonic() > self.until

    @property
    def is_full(self) -> bool:
        """Whether what was moved has to go before more is."""
        return len(self.moved) >= _MOST_MOVED

    def takes(self, status: os.stat_result) -> bool:
        """Whether it is to go."""
        is_older = status.st_ctime <= self.before or (status.st_dev, status.st_ino) in self.entered
        return self.uid is None or (status.st_uid == self.uid and is_older)


def _empty_whole(top: int, uid: int | None, before: float, seconds: float = _SECONDS) -> int:
    """Remove what is in an open directory, which is closed, however deep it goes."""
    removed = 0
    try:
        removal = _Removal(uid=uid, before=before, top=top, moved=[], until=time.monotonic() + seconds)
        passes = 0
        while passes < _PASSES:
            so_far = removed
            removed += _empty(os.dup(top), removal)
            passes += not removal.is_full
            while removal.moved and not removal.is_late:
                name = removal.moved.pop()
                with contextlib.suppress(OSError):
                    inner = os.open(name, _ENTER, dir_fd=top)
                    if uid is not None and os.fstat(inner).st_uid != uid:  # its time was looked at before it was moved
                        os.close(inner)
                        continue
                    removed += _empty(inner, removal)
                    status = os.stat(name, dir_fd=top, follow_symlinks=False)
                    os.rmdir(name, dir_fd=top)
                    removal.entered.discard((status.st_dev, status.st_ino))
                    removed += 1
            if removed == so_far or removal.is_late:
                break
    finally:
        os.close(top)
    return removed


def _empty(directory: int, removal: _Removal, depth: int = _DEPTH) -> int:
    """Remove what is in an open directory, which is closed.

    By descriptors and never through a symbolic link: this is root at work where users write.
    """
    removed = 0
    try:
        device = os.fstat(directory).st_dev
        with os.scandir(directory) as found:
            while names := [] if removal.is_late or removal.is_full else [e.name for e in islice(found, _AT_ONCE)]:
                for name in names:
                    with contextlib.suppress(OSError):
                        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
                        if status.st_dev == device and removal.takes(status):
                            removed += _remove(directory, name, status, removal, depth)
        if removal.is_full:
            here = os.fstat(directory)
            removal.entered.add((here.st_dev, here.st_ino))
    finally:
        os.close(directory)
    return removed


def _remove(directory: int, name: str, status: os.stat_result, removal: _Removal, depth: int) -> int:
    """One entry, with what is below it; how many that were. Raises OSError.

    A directory that is too deep to be entered from here is moved up under a name that is noted.
    """
    if not stat.S_ISDIR(status.st_mode):
        os.unlink(name, dir_fd=directory)
        return 1
    if not depth:
        if removal.is_full:
            return 0
        new = f".left-{secrets.token_hex(16)}"
        os.rename(name, new, src_dir_fd=directory, dst_dir_fd=removal.top)
        removal.moved.append(new)
        return 0
    inner = os.open(name, _ENTER, dir_fd=directory)
    if not removal.takes(os.fstat(inner)):  # another one has taken its place
        os.close(inner)
        return 0
    removed = _empty(inner, removal, depth - 1)
    with contextlib.suppress(OSError):
        os.rmdir(name, dir_fd=directory)
        removal.entered.discard((status.st_dev, status.st_ino))  # another one may get this number
        removed += 1
    return removed


def ipc_objects(uid: int, before: Moment, proc: Path) -> Iterator[tuple[str, int]]:
    """Kind and number of the user's System V objects; of shared memory only what no process has attached.

    Those that were made or changed after `before` are another job's: semaphores and queues look unused all the time.

    They outlive every process, and there are not many for all users of a node together. Who made one can give it to
    any other user, and has it still.
    """
    for kind, number in IPC.items():
        with contextlib.suppress(OSError, ValueError):
            lines = (proc / "sysvipc" / kind).read_text(encoding="ascii", errors="replace").splitlines()
            names = lines[0].split()
            for line in lines[1:]:
                row = dict(zip(names, line.split(), strict=False))
                if str(uid) not in {row.get("uid"), row.get("cuid")} or row.get("nattch", "0") != "0":
                    continue
                if int(row.get("ctime", "0")) <= before.seconds:
                    yield kind, int(row[number])


def remove_ipc_objects(uid: int, objects: list[tuple[str, int]]) -> int:
    """Remove System V objects of a user. Returns how many were removed.

    As that user: for root it takes SYS_ADMIN, which the pod has given up.
    """
    import ctypes  # noqa: PLC0415  (it takes milliseconds, and hardly any job leaves any)

    libc = ctypes.CDLL(None)
    # 0: IPC_RMID. semctl(2) wants the number of a semaphore, too, and does not look at it.
    remove: dict[str, Callable[[int], int]] = {
        "shm": lambda number: libc.shmctl(number, 0, None),
        "msg": lambda number: libc.msgctl(number, 0, None),
        "sem": lambda number: libc.semctl(number, 0, 0),
    }
    before = os.geteuid()
    os.seteuid(uid)
    try:
        return sum(remove[kind](number) == 0 for kind, number in objects)
    finally:
        os.seteuid(before)
