"""A job's own directories on the node, which go with it.

`/tmp/jobs/NUMBER` is its temporary one, for its user only. PMIx has one or two for each step in slurmd's spool, which
are the user's, too: Slurm removes them, and gives up where another job of the user goes on making names in them.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Final

JOBS: Final = Path("/tmp/jobs")
"""Belongs to root, so that nobody can take a later job's name. The same inside the jail, whose /tmp is the pod's."""

SPOOL: Final = Path("/var/spool/slurmd")
"""slurmd's, and root's at its top. The same inside the jail (jail_view.py)."""

_GONE: Final = ".gone-"
_OF_STEP: Final = re.compile(r"(?:pmix\.|spmix_appdir_[0-9]+_)([0-9]+)\.[0-9]+")
"""pmixp_info.c in Slurm."""


def make(job: str, uid: int, gid: int, jobs: Path = JOBS) -> Path:
    """Make the directory. Raises OSError, also where somebody else has put something in its place."""
    jobs.mkdir(mode=0o755, exist_ok=True)
    _expect_own(jobs)
    directory = jobs / _name(job)
    try:
        directory.mkdir(mode=0o700)
    except FileExistsError:
        retire(job, jobs)  # the job was here before, and its end was not seen
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


def retire(job: str, jobs: Path = JOBS) -> Path | None:
    """Move the directory aside, so that the job's next run on this node gets a new one; None if there is none.

    What is returned is for `leftovers.remove_tree`, which may take its time. Raises OSError.
    """
    directory = jobs / _name(job)
    gone = jobs / f"{_GONE}{job}-{os.getpid()}"
    try:
        _expect_own(jobs)
        directory.rename(gone)
    except FileNotFoundError:
        return None
    return gone


def retire_steps(job: str, spool: Path = SPOOL) -> list[Path]:
    """Move aside what PMIx has left of the steps of a job that has ended. Raises OSError."""
    gone = []
    for path in sorted(spool.iterdir()) if spool.exists() else ():
        found = _OF_STEP.fullmatch(path.name)
        if found and found[1] == _name(job):
            _expect_own(spool)
            gone.append(path.rename(spool / f"{_GONE}{path.name}-{os.getpid()}"))
    return gone


def left(jobs: Path = JOBS) -> list[Path]:
    """What was moved aside and is still there: another job of its user may have gone on writing there."""
    try:
        _expect_own(jobs)
    except OSError:
        return []
    return sorted(jobs.glob(f"{_GONE}*"))


def _expect_own(jobs: Path) -> None:
    """Raise OSError where users could have made it: by a link root would go where they want."""
    status = jobs.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise PermissionError(f"{jobs} is not a directory of root alone")


def _name(job: str) -> str:
    if not job.isdigit():
        raise ValueError(f"{job!r} is no job's number")
    return job
