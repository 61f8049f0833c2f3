"""A job's own directory on the node, `/tmp/jobs/NUMBER`, for its user only. It goes with the job (native/around.c)."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

JOBS: Final = Path("/tmp/jobs")
"""Belongs to root, so that nobody can take a later job's name. The same inside the jail, whose /tmp is the pod's."""

_GONE: Final = ".gone-"
"""As in images/health/native/around.c."""


def make(job: str, uid: int, gid: int, jobs: Path = JOBS) -> Path:
    """Make the directory. Raises OSError, also where somebody else has put something in its place."""
    jobs.mkdir(mode=0o755, exist_ok=True)
    _expect_own(jobs)
    directory = jobs / _name(job)
    try:
        directory.mkdir(mode=0o700)
    except FileExistsError:
        _set_aside(directory)  # the job was here before, and its end was not seen
        directory.mkdir(mode=0o700)
    os.chown(directory, uid, gid, follow_symlinks=False)
    return directory


def of(job: str, uid: int, gid: int, jobs: Path = JOBS) -> Path:
    """The directory of a job: what the prolog has made, else made now. Raises OSError, also for another user's."""
    directory = jobs / _name(job)
    try:
        status = directory.lstat()
    except FileNotFoundError:
        return make(job, uid, gid, jobs)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != uid:
        raise PermissionError(f"{directory} is not a directory of user {uid}")
    return directory


def _set_aside(directory: Path) -> None:
    """Move it aside, so that the job's next run on this node gets a new one; an epilog removes it."""
    directory.rename(directory.with_name(f"{_GONE}{directory.name}-{os.getpid()}"))


def _expect_own(jobs: Path) -> None:
    """Raise OSError where users could have made it: by a link root would go where they want."""
    status = jobs.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise PermissionError(f"{jobs} is not a directory of root alone")


def _name(job: str) -> str:
    if not job.isdigit():
        raise ValueError(f"{job!r} is no job's number")
    return job
