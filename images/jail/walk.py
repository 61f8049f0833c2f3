"""Looking through a root file system in which users write, while they write.

All by directories that are held open, never through a link, and with bounds: whoever may write in a directory can make
trees that are deeper than any path may be long, and go on making files for as long as somebody looks.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

DEEPEST: Final = 128
"""Levels of directories: packages of Node.js, the deepest that are known, have about 40. Each is held open."""

INTO: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class EnoughError(Exception):
    """A bound is reached; the message says which, and where."""


@dataclass
class Bounds:
    """Of one look."""

    until: float
    """Of time.monotonic()."""
    left: int
    """Files and directories."""
    too_deep: list[str] = field(default_factory=list)
    """Directories that were not gone into."""

    def count(self, path: str) -> None:
        """One more. Raises EnoughError."""
        self.left -= 1
        if self.left < 0:
            raise EnoughError(f"too many files, at {shown(path)}")
        if time.monotonic() > self.until:
            raise EnoughError(f"no more time, at {shown(path)}")


@dataclass(frozen=True, kw_only=True)
class Found:
    """One file, directory or whatever it is."""

    path: str
    """From the root, with a slash at its beginning."""
    name: str
    parent: int
    """Its directory, open until the next one is asked for."""
    status: os.stat_result

    @property
    def is_directory(self) -> bool:
        """Whether it is one. A link to one is none."""
        return stat.S_ISDIR(self.status.st_mode)


def walk(
    root: int, bounds: Bounds, skipped: Callable[[str], bool], *, path: str = "", depth: int = 0
) -> Iterator[Found]:
    """All that is below an open directory, directories before what is in them. Raises EnoughError.

    `skipped`: whether a path is left out, with what is below it.
    """
    with os.scandir(root) as entries:
        for entry in entries:
            below = f"{path}/{entry.name}"
            if skipped(below):
                continue
            bounds.count(below)
            with suppress(OSError):  # it has gone, or become something else
                status = os.stat(entry.name, dir_fd=root, follow_symlinks=False)
                yield Found(path=below, name=entry.name, parent=root, status=status)
                if not stat.S_ISDIR(status.st_mode):
                    continue
                if depth + 1 >= DEEPEST:
                    bounds.too_deep.append(below)
                    continue
                inner = os.open(entry.name, INTO, dir_fd=root)
                try:
                    yield from walk(inner, bounds, skipped, path=below, depth=depth + 1)
                finally:
                    os.close(inner)


def shown(path: str) -> str:
    """A path in a message: whatever its bytes are, and however long it is."""
    text = path if len(path) <= 300 else f"{path[:140]}...{path[-140:]}"
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
