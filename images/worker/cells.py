"""Cells: each job's own view of the jail, in which /tmp and /dev/shm are nobody else's.

A cell is the jail's tree with all that is bound into it, mounted once more, and with the job's own directories over
/tmp and /dev/shm. The plugin that takes steps into the jail takes them into their job's cell (images/spank/jail.c). It
is in the mount namespace of the whole pod: slurmstepd has threads when it goes in, so it could not change its own, and
a process in a namespace of its own would see none of its mounts in /proc. No other job has a path to it.

/tmp is the job's directory below JOBS, on the volume that the pod has for it; /dev/shm is a tmpfs, counted in the
memory of the job that fills it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

from images.common.jail_view import Bind, JailViewError, open_inside, show
from images.common.mountinfo import attach, expect_done, libc, mount_points

CELLS: Final = Path("/run/slurmstack/cells")
"""For root alone, and no place of the jail."""

SHARED_MEMORY: Final = "/dev/shm"

_MIB: Final = 2**20
LEAST_MEMORY: Final = 30 * _MIB
"""Slurm limits no job to less, whatever it has asked for (MinRAMSpace of cgroup.conf)."""

KEPT_FOR_STEPS: Final = 32 * _MIB
"""Bytes of a job's memory that its /dev/shm leaves: each step has a slurmstepd of about 10 MiB in the same limit."""

LEAST_FILES: Final = _MIB
"""Bytes of a file system in memory where that leaves nothing."""

_FILE: Final = 1024
"""Bytes of the kernel's memory that a file takes, counted for the job but not in the size: even an empty one."""

_PART_FOR_FILES: Final = 32
"""There may be as many files as fill this part of the size with what the kernel keeps of each. Without that, empty
files could fill all of the job's memory."""

_LEAST_NUMBER: Final = 1024

MUCH: Final = 64 * _MIB
"""Bytes in a /dev/shm that are freed by another process: a machine frees some GiB a second."""

WITHOUT_ROOM: Final = 16 * _MIB
"""Bytes of /tmp at most, in the job's memory, where its volume has no room for another directory. A job that could
not start for that would have its node drained by Slurm, and any user can fill the volume."""

JOBS: Final = Path("/tmp/jobs")
"""Each job's own directory, `NUMBER`, for its user only; it goes with the job (images/health/native/around.c). This one
belongs to root, so that nobody can take a later job's name. The same inside the jail, whose /tmp is the pod's."""

_GONE: Final = ".gone-"
"""As in images/health/native/around.c."""

_MOST_FILES: Final = 2**20
"""More than any process has open here."""

_MNT_DETACH: Final = 2
_UMOUNT_NOFOLLOW: Final = 8
_NOSUID_NODEV: Final = 2 | 4
_MS_REMOUNT: Final = 32

NOT_KNOWN: Final = -1
"""A job's memory where slurmd asks, for `sbcast`."""


class Mounts:
    """The calls that take CAP_SYS_ADMIN, and where something is mounted. All raise OSError."""

    def points(self) -> frozenset[str]:
        """Where something is mounted."""
        return mount_points()

    def copy(self, tree: Path, target: int) -> None:
        """Mount a tree with all that is mounted below it over an open directory."""
        attach(tree, target, recursive=True)

    def bind(self, root: Path, path: str, source: Path) -> None:
        """Mount a directory over `path` of a root that others write to."""
        show(root, Bind(path=path, source=str(source)))

    def memory(self, target: int, size: int) -> None:
        """Mount an empty file system in memory of so many bytes, for everybody to write, over an open directory."""
        # By its descriptor: the path may lead elsewhere by now.
        at, options = f"/proc/self/fd/{target}".encode(), f"mode=1777,{_room(size)}".encode()
        expect_done(libc().mount(b"tmpfs", at, b"tmpfs", _NOSUID_NODEV, options), "mount a tmpfs")

    def size(self, target: int) -> int:
        """Bytes of an open directory's file system."""
        found = os.statvfs(f"/proc/self/fd/{target}")
        return found.f_blocks * found.f_frsize

    def used(self, target: int) -> int:
        """Bytes that are used of an open directory's file system in memory, also by what the kernel keeps of files."""
        found = os.statvfs(f"/proc/self/fd/{target}")
        return (found.f_blocks - found.f_bfree) * found.f_frsize + (found.f_files - found.f_ffree) * _FILE

    def resize(self, target: int, size: int) -> None:
        """Give a file system in memory so many bytes."""
        at, flags = f"/proc/self/fd/{target}".encode(), _MS_REMOUNT | _NOSUID_NODEV
        expect_done(libc().mount(None, at, None, flags, _room(size).encode()), "resize a tmpfs")

    def remove(self, point: Path) -> None:
        """Take away what is mounted there, and all below it."""
        expect_done(libc().umount2(os.fsencode(point), _MNT_DETACH | _UMOUNT_NOFOLLOW), f"unmount {point}")


def _room(size: int) -> str:
    return f"size={size},nr_inodes={max(_LEAST_NUMBER, size // _PART_FOR_FILES // _FILE)}"


class Cells:
    """The cells of a worker. They are found again by a warden that takes the place of one that has ended."""

    def __init__(
        self,
        jail: Path,
        shared_memory: int,
        *,
        cells: Path = CELLS,
        jobs: Path = JOBS,
        mounts: Mounts | None = None,
    ) -> None:
        """`shared_memory`: bytes that a job may have in /dev/shm."""
        self._jail = jail
        self._shared_memory = shared_memory
        self._cells = cells
        self._jobs = jobs
        self._mounts = mounts or Mounts()
        cells.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._freeing: dict[str, int] = {}
        """Jobs whose /dev/shm is being freed, and by which process."""
        self._made = self._find()

    def __contains__(self, job: str) -> bool:
        return job in self._made

    def jobs(self) -> list[str]:
        """The jobs that have one."""
        return sorted(self._made)

    def path(self, job: str) -> Path:
        """Where a job's cell is, or would be."""
        return self._cells / job

    def enter(self, job: str, uid: int, gid: int, memory_mib: int = 0) -> Path:
        """Make a job's cell, unless it is there. Raises OSError or JailViewError, and leaves nothing behind then.

        `memory_mib`: the job's; 0: nothing limits it; NOT_KNOWN: /dev/shm is small until somebody knows.
        """
        cell = self.path(job)
        if job in self._made and not _is_of_another(cell, uid):
            self._enlarge(cell, memory_mib)
            return cell
        if job in self._made:  # slurmctld has lost its state, and nobody has told of the first one's end
            self.leave(job)
            with contextlib.suppress(OSError):  # tried again below
                make_directory(job, uid, gid, self._jobs)
        cell.mkdir(mode=0o700)
        try:
            self._fill(cell, self._temporary(job, uid, gid), memory_mib)
        except BaseException:
            self._clear(cell)
            raise
        self._made.add(job)
        return cell

    def leave(self, job: str) -> None:
        """Take a job's cell away, with its shared memory. What still runs there keeps what it has open."""
        if job in self._made:
            # Also those of jobs after whose end nobody asks any more.
            self._freeing = {freed: child for freed, child in self._freeing.items() if not has_ended(child)}
            if child := self._clear(self.path(job)):
                self._freeing[job] = child
            self._made.discard(job)

    def is_freeing(self, job: str) -> bool:
        """Whether what a job had in /dev/shm is still being freed."""
        if job in self._freeing and has_ended(self._freeing[job]):
            del self._freeing[job]
        return job in self._freeing

    def _find(self) -> set[str]:
        """The jobs' cells that are there. One that was only begun goes: it would show what is everybody's."""
        points = self._mounts.points()
        found = set()
        for cell in self._cells.iterdir():
            if cell.name.isdigit() and {str(cell), f"{cell}/tmp", f"{cell}{SHARED_MEMORY}"} <= points:
                found.add(cell.name)
            else:
                with contextlib.suppress(OSError):  # what is in its place then keeps that job from starting
                    self._clear(cell)
        return found

    def _in_memory(self, memory_mib: int, *, with_tmp: bool) -> tuple[int, int]:
        """Bytes of /dev/shm and of /tmp, if that is in memory, too.

        What is in there stays when the kernel ends the tasks. Without room for slurmstepd the kernel would end that as
        well, and nobody would say that the job has ended.
        """
        if memory_mib == NOT_KNOWN:
            return LEAST_FILES, LEAST_FILES
        if memory_mib <= 0:
            return self._shared_memory, WITHOUT_ROOM
        room = max(LEAST_MEMORY, memory_mib * _MIB) - KEPT_FOR_STEPS
        tmp = max(LEAST_FILES, min(WITHOUT_ROOM, room // 2))
        shared = room - tmp if with_tmp else room
        return min(self._shared_memory, max(LEAST_FILES, shared - shared // _PART_FOR_FILES)), tmp

    def _temporary(self, job: str, uid: int, gid: int) -> Path | None:
        """The job's directory; None where its volume is full."""
        try:
            return directory_of(job, uid, gid, self._jobs)
        except OSError as error:
            if error.errno in {errno.ENOSPC, errno.EDQUOT}:
                return None
            raise

    def _fill(self, cell: Path, temporary: Path | None, memory_mib: int) -> None:
        shared, tmp = self._in_memory(memory_mib, with_tmp=temporary is None)
        self._at(cell, "", lambda target: self._mounts.copy(self._jail, target))
        if temporary is None:
            self._at(cell, "/tmp", lambda target: self._mounts.memory(target, tmp))
        else:
            self._mounts.bind(cell, "/tmp", temporary)
        self._at(cell, SHARED_MEMORY, lambda target: self._mounts.memory(target, shared))

    def _enlarge(self, cell: Path, memory_mib: int) -> None:
        """The first step knows the job's memory, which who came before it did not."""
        if memory_mib == NOT_KNOWN:
            return
        wanted, _ = self._in_memory(memory_mib, with_tmp=False)

        def enlarge(target: int) -> None:
            if self._mounts.size(target) <= LEAST_FILES < wanted:
                self._mounts.resize(target, wanted)

        self._at(cell, SHARED_MEMORY, enlarge)

    @staticmethod
    def _at(root: Path, path: str, mount: Callable[[int], None]) -> None:
        target = open_inside(root, path, make=False, kind="directory")
        try:
            mount(target)
        finally:
            os.close(target)

    def _clear(self, cell: Path) -> int:
        """Returns the process that frees its memory, 0 if that is done."""
        memory = self._much_memory(cell)
        with contextlib.suppress(OSError):  # nothing was mounted yet
            self._mounts.remove(cell)
        child = 0 if memory is None else _free_elsewhere(memory)
        cell.rmdir()
        return child

    def _much_memory(self, cell: Path) -> int | None:
        """Its /dev/shm, open, if there is much in it."""
        with contextlib.suppress(OSError, JailViewError):
            memory = open_inside(cell, SHARED_MEMORY, make=False, kind="directory")
            if self._mounts.used(memory) >= MUCH:
                return memory
            os.close(memory)
        return None


def _is_of_another(cell: Path, uid: int) -> bool:
    """Whether a job's own /tmp belongs to another user. One in memory is root's, and says nothing."""
    with contextlib.suppress(OSError):
        return (cell / "tmp").lstat().st_uid not in {0, uid}
    return False


def shared_memory_size(directory: str = SHARED_MEMORY) -> int:
    """Bytes that the pod may have in /dev/shm, which is what each of its jobs may have."""
    found = os.statvfs(directory)
    return found.f_blocks * found.f_frsize


def make_directory(job: str, uid: int, gid: int, jobs: Path = JOBS) -> Path:
    """Make a job's own directory. Raises OSError, also where somebody else has put something in its place."""
    jobs.mkdir(mode=0o755, exist_ok=True)
    status = jobs.lstat()
    # Users could have made it: by a link root would go where they want.
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise PermissionError(f"{jobs} is not a directory of root alone")
    directory = jobs / job
    with contextlib.suppress(FileNotFoundError):
        # The job was here before, and its end was not seen: an epilog removes it.
        directory.rename(directory.with_name(f"{_GONE}{job}-{os.getpid()}"))
    directory.mkdir(mode=0o700)
    os.chown(directory, uid, gid, follow_symlinks=False)
    return directory


def directory_of(job: str, uid: int, gid: int, jobs: Path = JOBS) -> Path:
    """A job's own directory: what the prolog has made, else made now. Raises OSError, also for another user's."""
    directory = jobs / job
    try:
        status = directory.lstat()
    except FileNotFoundError:
        return make_directory(job, uid, gid, jobs)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != uid:
        raise PermissionError(f"{directory} is not a directory of user {uid}")
    return directory


def _free_elsewhere(memory: int) -> int:
    """Close what is left of a file system in memory, in a process of its own; 0 where there are no more processes.

    The kernel frees it in who closes it last, and needs seconds for many GiB. That must not be the warden, which all
    steps of the node ask, one after the other.
    """
    waits, ends = os.pipe()
    try:
        child = os.fork()
    except OSError:
        child = -1
    if child == 0:
        try:
            os.dup2(waits, 0)
            close_all_but(memory)  # others wait for the end of what the warden has open
            os.read(0, 1)  # until the warden has closed it
        finally:
            os._exit(0)
    for file in (waits, memory, ends):
        os.close(file)
    return max(0, child)


def close_all_but(kept: int, first: int = 3) -> None:
    """Close what a forked process has of its parent's; by default but for standard streams."""
    os.closerange(first, kept)
    os.closerange(kept + 1, _MOST_FILES)


def has_ended(child: int) -> bool:
    """Whether a process that was started here has ended; it is forgotten then."""
    try:
        return os.waitpid(child, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return True
