"""One `up` or `down` at a time, one build at a time: files that hold locks."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from local import paths
from local.errors import LocalError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_NOT_OURS = {errno.ELOOP: "it is a link", errno.EACCES: "somebody else made it", errno.EISDIR: "it is a directory"}
"""EACCES is what root gets from the kernel for another's file in a directory like /run/lock (fs.protected_regular)."""


def open_file(path: Path) -> IO[bytes]:
    """Open a file to lock, which may be where everybody may make files (/run/lock). `LocalError` if it is not ours.

    Root would write through another user's link, and wait for ever for a lock that another user holds.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    why = "it is no plain file of this user"
    try:
        file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), "wb")
    except OSError as error:
        if error.errno not in _NOT_OURS:
            raise
        why = _NOT_OURS[error.errno]
    else:
        found = os.fstat(file.fileno())
        if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid():
            return file
        file.close()
    raise LocalError(f"{path} cannot be used as a lock: {why}", f"look whose it is, then remove it: rm {path}")


@contextmanager
def hold(path: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold a lock; `on_wait` is called where somebody else has it. The kernel frees it however the process ends."""
    with open_file(path) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def exclusive() -> Iterator[None]:
    """Hold the lock of this slurmstack directory. `LocalError` where another command has it."""

    def refuse() -> None:
        msg = f"another slurmstack command is working on {paths.root()}"
        raise LocalError(msg, "wait for it to end, then run again")

    with hold(paths.cache() / "lock", refuse):
        yield
