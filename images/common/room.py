"""Says in a daemon's log that its volume is full, which one that is, and what helps.

The daemons themselves say which file they could not write, each in words of its own and some only once. A process
beside the daemon looks, as the daemon takes the place of our program.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from images.common.process import drop_privileges

INTERVAL: Final = 5.0
"""Seconds between two looks, each of which is one system call."""

AGAIN: Final = 600.0
"""Seconds until a full volume is named again."""

_MEBIBYTE: Final = 2**20
_LEAST_SHARE: Final = 0.05
_LEAST_BYTES: Final = 1024 * _MEBIBYTE
"""A volume is called full when less than both are free: 5 % of 10 TiB would do for years."""

_PR_SET_PDEATHSIG: Final = 1


@dataclass(frozen=True, kw_only=True)
class Volume:
    """A volume as people know it."""

    name: str
    path: Path
    remedy: str
    """What is lost while it is full, and what to do."""


def watch(volume: Volume, user: pwd.struct_passwd, log: Callable[[str], None]) -> None:
    """Look after a volume for as long as this process lives, whatever program it becomes."""
    parent = os.getpid()
    if os.fork() != 0:
        return
    try:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        drop_privileges(user)
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        messages = judge(volume, lambda: os.statvfs(volume.path), time.monotonic)
        while os.getppid() == parent:
            message = next(messages)
            if message is not None:
                log(message)
            time.sleep(INTERVAL)
    finally:
        os._exit(0)


def judge(volume: Volume, look: Callable[[], os.statvfs_result], clock: Callable[[], float]) -> Iterator[str | None]:
    """What is to be said after each look; None: nothing new."""
    told: float | None = None
    while True:
        try:
            found = look()
        except OSError:  # the daemon says more of a volume that cannot be read at all
            yield None
            continue
        free, size = found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
        full = free < min(_LEAST_SHARE * size, _LEAST_BYTES)
        if full and (told is None or clock() >= told + AGAIN):
            told = clock()
            room = f"{free // _MEBIBYTE} MiB of {size // _MEBIBYTE} MiB are free"
            yield f"the volume {volume.name} ({volume.path}) is full: {room}; {volume.remedy}"
        elif told is not None and not full:
            told = None
            yield f"the volume {volume.name} ({volume.path}) has room again"
        else:
            yield None
