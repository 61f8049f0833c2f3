"""filesystem: how long the jail takes to write, sync and remove.

A file of 4 KiB for a moment, `.slurmstack/health/probe-NODE` in the jail.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from images.common.command import Runner
from images.common.health.contract import Check, Node, Result, fail, not_checked, ok, warn
from images.health.state import lasts

NAME: Final = "filesystem"

SECONDS: Final = 9.0
"""Time limit: all operations may fail slowly within it."""

WARN_SECONDS: Final = 0.5
FAIL_SECONDS: Final = 2.0
"""For one operation. A healthy shared file system syncs 4 KiB in 1 to 20 ms; two seconds for one operation make an
`import torch`, which opens some thousand files, take an hour."""

PERSISTS_SECONDS: Final = 60.0
"""Only what is slow in every run for so long is a fault: a burst of other jobs' writing ends sooner."""

SIZE: Final = 4096

BROKEN: Final = frozenset(
    {errno.EIO, errno.EROFS, errno.ESTALE, errno.ENOTCONN, errno.ENOSPC, errno.ENODEV, errno.EUCLEAN, errno.ESHUTDOWN}
)
"""What a file system says that no job can write to. Any other error may be about this check and its rights."""

PARENT: Final = ".slurmstack"
"""Of the jail's root; populate makes it. Where it is missing, this is no jail, and nothing is made in it."""
DIRECTORY: Final = "health"

_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextlib.contextmanager
def probe_directory(jail: Path) -> Iterator[int]:
    """A descriptor of `.slurmstack/health` in the jail, which is made where it is missing. Raises OSError.

    Step by step and never through a symbolic link, as this is root at work where users write.
    """
    parent = os.open(jail / PARENT, _FLAGS)
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(DIRECTORY, 0o700, dir_fd=parent)
        directory = os.open(DIRECTORY, _FLAGS, dir_fd=parent)
    finally:
        os.close(parent)
    try:
        yield directory
    finally:
        os.close(directory)


def _measure(directory: int, name: str) -> dict[str, float]:
    """Seconds that each operation took in an open directory. Raises OSError.

    The same name each time: what a run that was ended in between has left is overwritten and removed by the next.
    """
    start = time.monotonic()
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(name, flags, 0o600, dir_fd=directory)
    try:
        os.write(file, b"\0" * SIZE)
        written = time.monotonic()
        os.fsync(file)
    finally:
        os.close(file)
    synced = time.monotonic()
    os.unlink(name, dir_fd=directory)
    return {"write": written - start, "sync": synced - written, "remove": time.monotonic() - synced}


def run(node: Node, _runner: Runner) -> Result:
    """Try it in the jail, and hold the times against the limits."""
    if node.jail is None:
        return ok()
    try:
        with probe_directory(node.jail) as directory:
            took = _measure(directory, f"probe-{node.name}")
    except OSError as error:
        reason = f"{node.jail}: {error.strerror or error}"
        return fail("node", reason) if error.errno in BROKEN else not_checked(reason)
    failure = node.limit(NAME, "fail_seconds", FAIL_SECONDS)
    least = min(WARN_SECONDS, failure)
    values = {f'filesystem_seconds{{operation="{name}"}}': seconds for name, seconds in took.items()}
    is_slow = max(took.values()) >= failure
    lasted = lasts(node, NAME, now=is_slow)
    slow = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in took.items() if seconds >= least)
    if not slow:
        return ok(**values)
    failed = is_slow and lasted >= PERSISTS_SECONDS
    message = f"slow: {slow}, {failure:g} s allowed" + (f", for {lasted:.0f} s now" if lasted else "")
    return (fail if failed else warn)("node", message, values)


# Not before a job: a slow jail is slow for all nodes, and a job's start elsewhere would not help. First of all that
# touch the jail, as the first touch is what waits; JailSlow (slurm/alerts.py) looks at how long this check takes.
CHECK: Final = Check(name=NAME, run=run, seconds=SECONDS)
