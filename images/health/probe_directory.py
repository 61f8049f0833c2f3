"""The directory of one node in the jail in which checks try the shared file system."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

PARENT: Final = ".slurmstack"
"""Of the jail's root; populate makes it. Where it is missing, this is no jail, and nothing is made in it."""
DIRECTORY: Final = "health"

_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def open_probe_directory(jail: Path, node: str) -> int:
    """Open `.slurmstack/health/NODE` of the jail, which is made where it is missing, and return its descriptor.

    Step by step and never through a symbolic link, as this is root at work where users write. One directory per node,
    so that a thousand nodes do not wait for one another. Raises OSError.
    """
    if "/" in node or node in {"", ".", ".."}:
        raise ValueError(f"{node!r} is no node's name")
    directory = os.open(jail / PARENT, _FLAGS)
    for name in (DIRECTORY, node):
        try:
            inner = _enter(directory, name)
        finally:
            os.close(directory)
        directory = inner
    return directory


def _enter(directory: int, name: str) -> int:
    try:
        return os.open(name, _FLAGS, dir_fd=directory)
    except FileNotFoundError:
        with contextlib.suppress(FileExistsError):  # another node's check was faster
            os.mkdir(name, 0o700, dir_fd=directory)
        return os.open(name, _FLAGS, dir_fd=directory)
