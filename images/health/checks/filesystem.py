"""filesystem: how long the jail takes to write, sync, rename and list.

In a directory of its own, `.slurmstack/health/NODE` in the jail, one file of 4 KiB for a moment.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from images.common.command import Runner
from images.common.health.contract import Check, Node, Result, Thresholds
from images.health.state import lasts
from images.health.verdict import fail, not_checked, ok, warn

NAME: Final = "filesystem"

SECONDS: Final = 9.0
"""Time limit: all four operations may fail slowly within it."""

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

Clock = Callable[[], float]


@contextlib.contextmanager
def probe_directory(jail: Path, node: str) -> Iterator[int]:
    """A descriptor of `.slurmstack/health/NODE` in the jail, which is made where it is missing.

    Step by step and never through a symbolic link, as this is root at work where users write. One directory per node,
    so that a thousand nodes do not wait for one another. Raises OSError.
    """
    if "/" in node or node in {"", ".", ".."}:
        raise ValueError(f"{node!r} is no node's name")
    directory = os.open(jail / PARENT, _FLAGS)
    try:
        for name in (DIRECTORY, node):
            inner = _enter(directory, name)
            os.close(directory)
            directory = inner
        yield directory
    finally:
        os.close(directory)


def _enter(directory: int, name: str) -> int:
    try:
        return os.open(name, _FLAGS, dir_fd=directory)
    except FileNotFoundError:
        with contextlib.suppress(FileExistsError):  # another node's check was faster
            os.mkdir(name, 0o700, dir_fd=directory)
        return os.open(name, _FLAGS, dir_fd=directory)


def measure(directory: int, clock: Clock = time.monotonic) -> dict[str, float]:
    """Seconds that each operation took in an open directory. Raises OSError.

    The same names each time: what a run that was ended in between has left is overwritten and removed by the next.
    """
    took = {}
    file = os.open("new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=directory)
    try:
        start = clock()
        os.write(file, b"\0" * SIZE)
        took["write"] = clock() - start
        start = clock()
        os.fsync(file)
        took["sync"] = clock() - start
    finally:
        os.close(file)
    start = clock()
    os.rename("new", "done", src_dir_fd=directory, dst_dir_fd=directory)
    took["rename"] = clock() - start
    start = clock()
    names = os.listdir(directory)
    took["list"] = clock() - start
    if "done" not in names:
        raise OSError(errno.EIO, "a file is not in the list of its directory right after it was renamed")
    os.unlink("done", dir_fd=directory)
    return took


def judge(node: Node, took: dict[str, float], thresholds: Thresholds, clock: Clock) -> Result:
    """The times against the limits."""
    warning = thresholds.get(NAME, "warn_seconds", WARN_SECONDS)
    failure = thresholds.get(NAME, "fail_seconds", FAIL_SECONDS)
    persists = thresholds.get(NAME, "persists_seconds", PERSISTS_SECONDS)
    values = {f'filesystem_seconds{{operation="{name}"}}': seconds for name, seconds in took.items()}
    slowest = max(took.values())
    lasted = lasts(node, NAME, now=slowest >= failure, clock=clock)
    if slowest < min(warning, failure):
        return ok(**values)
    slow = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in took.items() if seconds >= min(warning, failure))
    failed = slowest >= failure and lasted >= persists
    message = f"slow: {slow}, {failure:g} s allowed" + (f", for {lasted:.0f} s now" if lasted else "")
    return (fail if failed else warn)("node", message, values)


def run(node: Node, _runner: Runner, thresholds: Thresholds, *, clock: Clock = time.monotonic) -> Result:
    """Try it in the jail."""
    if node.jail is None:
        return ok()
    try:
        with probe_directory(node.jail, node.name) as directory:
            took = measure(directory, clock)
    except OSError as error:
        return failed(node.jail, error)
    return judge(node, took, thresholds, clock)


def failed(path: Path, error: OSError) -> Result:
    """What an error says about the file system."""
    reason = f"{path}: {error.strerror or error}"
    if error.errno in BROKEN:
        return fail("node", reason)
    return not_checked(reason)


# Not before a job: a slow jail is slow for all nodes, and a job's start elsewhere would not help. First of all that
# touch the jail, as the first touch is what waits; JailSlow (slurm/alerts.py) looks at how long this check takes.
CHECK: Final = Check(
    name=NAME,
    summary="how long the jail takes to write, sync, rename and list",
    run=run,
    seconds=SECONDS,
)
