"""The directory of one node in the jail in which checks try the shared file system."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

PARENT: Final = ".slurmstack"
"""Of the jail's root; populate makes it. Where it is missing, this is no jail, and nothing is made in it."""
DIRECTORY: Final = "health"

_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


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
