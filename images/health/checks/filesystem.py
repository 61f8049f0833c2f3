"""filesystem: how long the jail takes to write, sync, rename and list.

In a directory of its own, `.slurmstack/health/NODE` in the jail, one file of 4 KiB for a moment.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from images.common.command import Runner
from images.health.contract import Check, Node, Result, Status, Thresholds, not_checked
from images.health.probe_directory import open_probe_directory
from images.health.since import held_for

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

Clock = Callable[[], float]


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


def judge(took: dict[str, float], thresholds: Thresholds, slow_for: Callable[[bool], float]) -> Result:
    """The times against the limits. `slow_for` gets whether it is too slow now and tells for how long it has been."""
    warn = thresholds.get(NAME, "warn_seconds", WARN_SECONDS)
    fail = thresholds.get(NAME, "fail_seconds", FAIL_SECONDS)
    persists = thresholds.get(NAME, "persists_seconds", PERSISTS_SECONDS)
    values = {f'filesystem_seconds{{operation="{name}"}}': seconds for name, seconds in took.items()}
    slowest = max(took.values())
    lasted = slow_for(slowest >= fail)
    if slowest < min(warn, fail):
        return Result(status=Status.OK, values=values)
    slow = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in took.items() if seconds >= min(warn, fail))
    failed = slowest >= fail and lasted >= persists
    message = f"slow: {slow}, {fail:g} s allowed" + (f", for {lasted:.0f} s now" if lasted else "")
    return Result(status=Status.FAIL if failed else Status.WARN, message=message, fault="node", values=values)


def run(node: Node, _runner: Runner, thresholds: Thresholds, *, clock: Clock = time.monotonic) -> Result:
    """Try it in the jail."""
    if node.jail is None:
        return Result(status=Status.OK)
    try:
        directory = open_probe_directory(node.jail, node.name)
        try:
            took = measure(directory, clock)
        finally:
            os.close(directory)
    except OSError as error:
        return failed(node.jail, error)

    def slow_for(is_slow: bool) -> float:
        return held_for(node.state, NAME, ["slow"] if is_slow else [], clock).get("slow", 0.0)

    return judge(took, thresholds, slow_for)


def failed(path: Path, error: OSError) -> Result:
    """What an error says about the file system."""
    reason = f"{path}: {error.strerror or error}"
    if error.errno in BROKEN:
        return Result(status=Status.FAIL, message=reason, fault="node")
    return not_checked(reason)


# Not before a job: a slow jail is slow for all nodes, and a job's start elsewhere would not help.
CHECK: Final = Check(
    name=NAME,
    summary="how long the jail takes to write, sync, rename and list",
    contexts=frozenset({"periodic"}),
    run=run,
    seconds=SECONDS,
)
