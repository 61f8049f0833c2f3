"""Memory of a file system is freed by who closes it last, and the kernel needs seconds for many GiB.

That must not be the warden, which all steps of the node ask, one after the other.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

_MOST_FILES = 2**20
"""More than any process has open here."""


def close_all_but(*kept: int) -> None:
    """Close what a forked process has of its parent's, but for standard streams: others wait for the end of that."""
    first = 3
    for file in sorted(kept):
        os.closerange(first, file)
        first = max(first, file + 1)
    os.closerange(first, _MOST_FILES)


@contextlib.contextmanager
def freed_elsewhere(file: int) -> Iterator[int]:
    """Within this, take away the other ways to an open file system. Gives the process that frees it afterwards.

    0 where the machine or the pod has no more processes: then this one does it.
    """
    waits, ends = os.pipe()
    try:
        child = os.fork()
    except OSError:
        child = -1
    if child == 0:
        try:
            close_all_but(file, waits)
            os.read(waits, 1)
            os.close(file)
        finally:
            os._exit(0)
    os.close(waits)
    try:
        yield max(0, child)
    finally:
        os.close(file)
        os.close(ends)


def has_ended(child: int) -> bool:
    """Whether a process that was started here has ended; it is forgotten then."""
    try:
        return os.waitpid(child, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return True
