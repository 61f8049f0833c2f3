"""A thread that has hardly any CPU, while the rest of its process has all of it: by ptrace, as a debugger stops it."""

from __future__ import annotations

import ctypes
import os
import time
from pathlib import Path
from threading import Event
from typing import Final

_SEIZE, _INTERRUPT, _CONTINUE, _DETACH = 0x4206, 0x4207, 7, 17
_ALL: Final = 0x40000000
"""__WALL: threads, too."""

_RUNS: Final = 0.00003
_RESTS: Final = 0.2
"""Seconds. What takes it a millisecond takes it some seconds then."""
_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
_libc.ptrace.restype = ctypes.c_long


def slow_down(thread: Path, over: Event) -> None:
    """Let a thread (its directory in /proc) run for a moment each fifth of a second, until `over`. Root alone may."""
    number = int(thread.name)
    # Of this thread of ours alone, or the moment would be milliseconds on a busy machine.
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    _ptrace(_SEIZE, number)
    while not over.is_set():
        time.sleep(_RUNS)
        _ptrace(_INTERRUPT, number)
        _, status = os.waitpid(number, _ALL)
        # Stopped by a signal of somebody else's, which is handed on; or by us.
        is_ours = status >> 16
        if is_ours:
            over.wait(_RESTS)
        _ptrace(_DETACH if over.is_set() else _CONTINUE, number, 0 if is_ours else os.WSTOPSIG(status))


def _ptrace(request: int, thread: int, signal: int = 0) -> None:
    if _libc.ptrace(request, thread, None, signal) != 0:
        raise OSError(ctypes.get_errno(), f"ptrace {request:#x} of {thread}")
