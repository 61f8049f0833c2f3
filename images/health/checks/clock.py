"""clock: whether the machine's clock is set by somebody, and how far it is from the shared file system's.

Without programs and without a time server: the kernel knows whether its clock is being kept right (adjtimex(2)), and a
network file system stamps a file with its own server's clock when it is told to take the time of now. Slurm's messages
carry munge credentials, which are worth nothing 300 s after they were made.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from images.common.command import Runner
from images.health.contract import Check, Node, Result, Thresholds
from images.health.probe_directory import probe_directory
from images.health.verdict import fail, not_checked, ok, warn, worst

NAME: Final = "clock"

SECONDS: Final = 3.0
"""Time limit. A jail that hangs keeps several checks waiting, one after another."""

WARN_SECONDS: Final = 2.0
"""From here on `make` and `rsync` take new files for old ones."""
FAIL_SECONDS: Final = 60.0
"""Long before 300 s, where munge refuses credentials (its `--ttl`) and Kerberos tickets."""
WARN_ERROR_SECONDS: Final = 5.0
"""What the kernel thinks the error may be. It adds 500 millionths of the time since somebody set it right: 5 s are
2.8 hours without a word from a time server; systemd-timesyncd asks at least every 34 minutes."""

_STA_UNSYNC: Final = 0x0040
_FIELDS: Final = 26
"""Size of C's struct timex on 64-bit Linux in longs: 208 bytes (uapi/linux/timex.h)."""
_MAXERROR, _STATUS, _SECONDS = 3, 5, 9
"""Where in it these are, in longs."""


@dataclass(frozen=True, kw_only=True)
class Kept:
    """What the kernel knows about its clock."""

    synchronised: bool
    error_seconds: float
    """How far off it may be at most, as far as the kernel knows."""


def read_kernel() -> Kept:
    """Ask the kernel; any user may. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    timex = (ctypes.c_long * _FIELDS)()  # all zero, so no field is to be set
    if libc.adjtimex(timex) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    # `status` is an int in the place of a long; the padding behind it is not ours to read.
    status = timex[_STATUS] & 0xFFFF
    if abs(timex[_SECONDS] - time.time()) > 10:
        raise ValueError("the answer of adjtimex is not as expected")
    return Kept(synchronised=not status & _STA_UNSYNC, error_seconds=timex[_MAXERROR] / 1e6)


def judge_kernel(kept: Kept, thresholds: Thresholds) -> Result:
    """A clock that nobody keeps may still be right, so this is never more than a warning."""
    values = {"clock_synchronised": float(kept.synchronised), "clock_error_seconds": kept.error_seconds}
    limit = thresholds.get(NAME, "warn_error_seconds", WARN_ERROR_SECONDS)
    if not kept.synchronised:
        message = "no time service keeps this machine's clock right"
    elif kept.error_seconds >= limit:
        message = f"the clock may be {kept.error_seconds:.1f} s off: no time server has answered for long"
    else:
        return ok(**values)
    return warn("node", message, values)


def offset(directory: int, clock: Callable[[], float] = time.time) -> float:
    """Seconds by which the file system of an open directory is ahead of this machine, as far as can be told.

    The stamp is made between two looks at our clock; what lies between these counts as no offset. Where the file
    system is on this machine, or lets this machine stamp, the answer is 0. Raises OSError.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open("clock", flags, 0o600, dir_fd=directory)
    try:
        before = clock()
        os.utime(file)
        stamp = os.fstat(file).st_mtime
        after = clock()
    finally:
        os.close(file)
    if after < before:
        raise ValueError("the clock was set back meanwhile")
    if stamp < before - _TICK:
        return stamp - before
    return max(0.0, stamp - after)


_TICK: Final = 0.02
"""Kernels stamp files with the time of their last tick, which is at most 10 ms old; servers that count in whole
seconds are wrong by less than `WARN_SECONDS`."""


def judge_offset(seconds: float, thresholds: Thresholds) -> Result:
    """Distance to the shared file system, which is what all nodes have in common."""
    values = {"clock_offset_seconds": 0.0 - seconds}
    warning = thresholds.get(NAME, "warn_seconds", WARN_SECONDS)
    failure = thresholds.get(NAME, "fail_seconds", FAIL_SECONDS)
    if abs(seconds) < min(warning, failure):
        return ok(**values)
    side = "behind" if seconds > 0 else "ahead of"
    message = f"the clock is {abs(seconds):.1f} s {side} the shared file system's, {failure:g} s allowed"
    return (fail if abs(seconds) >= failure else warn)("node", message, values)


def run(
    node: Node,
    _runner: Runner,
    thresholds: Thresholds,
    *,
    kernel: Callable[[], Kept] = read_kernel,
    clock: Callable[[], float] = time.time,
) -> Result:
    """Both, where they can be had."""
    found = []
    try:
        found.append(judge_kernel(kernel(), thresholds))
    except (OSError, ValueError) as error:
        found.append(not_checked(f"the kernel does not tell about its clock: {error}"))
    if node.jail is not None:
        try:
            with probe_directory(node.jail, node.name) as directory:
                found.append(judge_offset(offset(directory, clock), thresholds))
        except (OSError, ValueError) as error:
            found.append(not_checked(f"the shared file system's clock: {error}"))
    return worst(found)


CHECK: Final = Check(
    name=NAME,
    summary="whether the clock is kept right, and its distance to the shared file system's",
    run=run,
    seconds=SECONDS,
)
