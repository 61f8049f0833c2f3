"""Job mounts: each job's own view of the jail, in which /tmp and /dev/shm are nobody else's.

A mount is the jail's tree with all that is bound into it, mounted once more, and with the job's own directories over
/tmp and /dev/shm. The plugin that takes steps into the jail takes them into their job's mount (images/spank/jail.c). It
is in the mount namespace of the whole pod: slurmstepd has threads when it goes in, so it could not change its own, and
a process in a namespace of its own would see none of its mounts in /proc. No other job has a path to it.

/tmp is the job's directory below JOBS, on the volume that the pod has for it; /dev/shm is a tmpfs, counted in the
memory of the job that fills it.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from pathlib import Path
from typing import Final

from images.common.jail_view import Bind, held, show
from images.common.mountinfo import attach, expect_done, libc, mount_points

JOB_MOUNTS: Final = Path("/run/slurmstack/job-mounts")
"""For root alone, and no place of the jail."""

SHARED_MEMORY: Final = "/dev/shm"

_MIB: Final = 2**20
KEPT_FOR_STEPS: Final = 32 * _MIB
"""Bytes of a job's memory that its /dev/shm leaves: each step has a slurmstepd of about 10 MiB in the same limit."""

LEAST_FILES: Final = _MIB
"""Bytes of a /dev/shm where that leaves nothing."""

JOBS: Final = Path("/tmp/jobs")
"""Each job's own directory, `NUMBER`, for its user only; it goes with the job (images/health/native/around.c). This one
belongs to root, so that nobody can take a later job's name. The same inside the jail, whose /tmp is the pod's."""

_MOST_FILES: Final = 2**20
"""More than any process has open here."""

_MNT_DETACH: Final = 2
_UMOUNT_NOFOLLOW: Final = 8
_NOSUID_NODEV: Final = 2 | 4


def mount_memory(target: int, size: int) -> None:
    """Mount an empty file system in memory of so many bytes, for everybody to write, over an open directory."""
    # By its descriptor: the path may lead elsewhere by now.
    at, options = f"/proc/self/fd/{target}".encode(), f"mode=1777,size={size}".encode()
    expect_done(libc().mount(b"tmpfs", at, b"tmpfs", _NOSUID_NODEV, options), "mount a tmpfs")


def unmount(point: Path) -> None:
    """Take away what is mounted there, and all below it."""
    expect_done(libc().umount2(os.fsencode(point), _MNT_DETACH | _UMOUNT_NOFOLLOW), f"unmount {point}")


class JobMounts:
    """The mounts of a worker's jobs. They are found again by a helper that takes the place of one that has ended."""

    def __init__(self, jail: Path, shared_memory: int, *, job_mounts: Path = JOB_MOUNTS, jobs: Path = JOBS) -> None:
        """`shared_memory`: bytes that a job may have in /dev/shm."""
        self._jail = jail
        self._shared_memory = shared_memory
        self._job_mounts = job_mounts
        self._jobs = jobs
        job_mounts.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._made = self._find()

    def __contains__(self, job: str) -> bool:
        return job in self._made

    def jobs(self) -> list[str]:
        """The jobs that have one."""
        return sorted(self._made)

    def path(self, job: str) -> Path:
        """Where a job's mount is, or would be."""
        return self._job_mounts / job

    def enter(self, job: str, uid: int, gid: int, memory_mib: int = 0) -> Path:
        """Make a job's mount, unless it is there. Raises OSError or JailViewError, and leaves nothing behind then.

        `memory_mib`: the job's; 0 or less: nothing limits it, or who asks does not know, as slurmd for `sbcast`.
        """
        job_mount = self.path(job)
        if job in self._made:
            if not _is_of_another(job_mount, uid):
                return job_mount
            # slurmctld has lost its state, and nobody has told of the first one's end. While its mount was there the
            # prolog left its directory, too: it goes as those that an epilog moves aside.
            self.leave(job)
            directory = self._jobs / job
            with contextlib.suppress(FileNotFoundError):
                if directory.lstat().st_uid != uid:
                    directory.rename(directory.with_name(f".gone-{job}-{time.time_ns()}"))
        job_mount.mkdir(mode=0o700)
        try:
            self._fill(job_mount, directory_of(job, uid, gid, self._jobs), memory_mib)
        except BaseException:
            self._clear(job_mount)
            raise
        self._made.add(job)
        return job_mount

    def leave(self, job: str) -> None:
        """Take a job's mount away, with its shared memory. What still runs there keeps what it has open."""
        if job in self._made:
            self._clear(self.path(job))
            self._made.discard(job)

    def _find(self) -> set[str]:
        """The jobs' mounts that are there. One that was only begun goes: it would show what is everybody's."""
        points = mount_points()
        found = set()
        for job_mount in self._job_mounts.iterdir():
            needed = {str(job_mount), f"{job_mount}/tmp", f"{job_mount}{SHARED_MEMORY}"}
            if job_mount.name.isdigit() and needed <= points:
                found.add(job_mount.name)
            else:
                with contextlib.suppress(OSError):  # what is in its place then keeps that job from starting
                    self._clear(job_mount)
        return found

    def _fill(self, job_mount: Path, temporary: Path, memory_mib: int) -> None:
        with held(job_mount, "") as target:
            attach(self._jail, target, recursive=True)
        show(job_mount, Bind(path="/tmp", source=str(temporary)))
        size = self._memory_size(memory_mib)
        with held(job_mount, SHARED_MEMORY) as target:
            mount_memory(target, size)

    def _memory_size(self, memory_mib: int) -> int:
        """Bytes of /dev/shm.

        What is in there stays when the kernel ends the tasks. Without room for slurmstepd the kernel would end that as
        well, and nobody would say that the job has ended.
        """
        if memory_mib <= 0:
            return self._shared_memory
        return min(self._shared_memory, max(LEAST_FILES, memory_mib * _MIB - KEPT_FOR_STEPS))

    def _clear(self, job_mount: Path) -> None:
        with contextlib.suppress(OSError):  # nothing was mounted yet
            unmount(job_mount)
        job_mount.rmdir()


def _is_of_another(job_mount: Path, uid: int) -> bool:
    """Whether a job's own /tmp belongs to another user."""
    return (job_mount / "tmp").lstat().st_uid not in {0, uid}


def shared_memory_size() -> int:
    """Bytes that the pod may have in /dev/shm, which is what each of its jobs may have."""
    found = os.statvfs(SHARED_MEMORY)
    return found.f_blocks * found.f_frsize


def make_directory(job: str, uid: int, gid: int, jobs: Path = JOBS) -> Path:
    """Make a job's own directory. Raises OSError, also where somebody else has put something in its place."""
    jobs.mkdir(mode=0o755, exist_ok=True)
    status = jobs.lstat()
    # Users could have made it: by a link root would go where they want.
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise PermissionError(f"{jobs} is not a directory of root alone")
    directory = jobs / job
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


def close_all_but(kept: int, first: int = 3) -> None:
    """Close what a forked process has of its parent's; by default but for standard streams."""
    os.closerange(first, kept)
    os.closerange(kept + 1, _MOST_FILES)
