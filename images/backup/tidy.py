"""What has come into the jail since a backup goes.

restic's own `--delete` would take what no backup was ever to have, too: files beyond `largest_file`, what cannot be
read. It fails at trees that are deeper than a path can be long, and where a directory has come in the place of a file.
"""

from __future__ import annotations

import json
import os
import re
import resource
import stat
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_NO_UTF8: Final = re.compile("[\udc80-\udcff]")
_UNKNOWN: Final = "\ufffd"
"""What restic's list has for each byte of a name that is not UTF-8."""

_DEEPEST: Final = 10_000
"""Levels of directories that are gone down, each held open; a path that restic can name has 2,048."""

_LONGEST: Final = 4096
"""Bytes of a path, as the kernel takes one."""


@dataclass(frozen=True, kw_only=True)
class Spared:
    """What is left alone. Paths as within the jail, with a slash at their beginning."""

    paths: frozenset[str] = frozenset()
    contents: frozenset[str] = frozenset()
    """Directories of which all content is."""
    largest: int
    """Bytes; a file that has more is in no backup."""


@dataclass
class _Directory:
    """One of the backup's, while the list is within it. No link is followed: whoever could write there put some."""

    path: str
    descriptor: int | None
    """None where today there is no such directory."""
    names: set[str] = field(default_factory=set)
    """What the backup has in it."""


class Tidy:
    """One pass along a backup's list. All is done by directories that are held open, so that none can be exchanged."""

    def __init__(self, spared: Spared, log: Callable[[str], None]) -> None:
        self._spared = spared
        self._log = log
        self.gone = 0
        """Files and directories that were removed."""

    def run(self, listed: Iterable[str], jail: Path) -> None:
        """Remove what a backup does not have. `listed`: `restic ls --json --recursive` of the jail in it."""
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        usual = sys.getrecursionlimit()
        sys.setrecursionlimit(4 * _DEEPEST)
        way = [_Directory("", os.open(jail, os.O_RDONLY | os.O_DIRECTORY))]
        try:
            for line in listed:
                node = json.loads(line)
                path = Path(node.get("path", "/"))
                if jail not in path.parents:
                    continue
                depth = len(path.relative_to(jail).parts)
                while len(way) > depth:
                    self._leave(way.pop())
                self._enter(way, path.name, is_directory=node["type"] == "dir")
            while way:
                self._leave(way.pop())
        finally:
            sys.setrecursionlimit(usual)
            for directory in way:
                if directory.descriptor is not None:
                    os.close(directory.descriptor)

    def _enter(self, way: list[_Directory], name: str, *, is_directory: bool) -> None:
        parent, found = way[-1], None
        parent.names.add(name)
        path = f"{parent.path}/{name}"
        if parent.descriptor is not None and path not in self._spared.paths:
            for one in _alike(parent.descriptor, name):
                try:
                    found = os.open(one, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent.descriptor)
                except OSError:
                    continue  # it is not there, or no directory
                if not is_directory:
                    os.close(found)
                    self._remove(parent.descriptor, one, f"{parent.path}/{one}", 0)
        if is_directory:
            way.append(_Directory(path, found))

    def _leave(self, directory: _Directory) -> None:
        if directory.descriptor is None:
            return
        try:
            for name in os.listdir(directory.descriptor):  # noqa: PTH208  no path
                if _NO_UTF8.sub(_UNKNOWN, name) not in directory.names:
                    self._remove(directory.descriptor, name, f"{directory.path}/{name}", 0)
        finally:
            os.close(directory.descriptor)

    def _remove(self, parent: int, name: str, path: str, depth: int) -> bool:
        """Whether it has gone. What cannot be removed stays, with a word about it."""
        if path in self._spared.paths or path.rpartition("/")[0] in self._spared.contents:
            return False
        try:
            found = os.stat(name, dir_fd=parent, follow_symlinks=False)
            if stat.S_ISDIR(found.st_mode):
                if not self._empty(parent, name, path, depth):
                    return False
                os.rmdir(name, dir_fd=parent)
            elif self._in_no_backup(parent, name, found):
                self._log(f"{path[-200:]!a} stays: it is too large for any backup, or cannot be read")
                return False
            else:
                os.unlink(name, dir_fd=parent)
        except OSError as error:
            self._log(f"{path[-200:]!a} stays: {error.strerror}")
            return False
        self.gone += 1
        return True

    def _empty(self, parent: int, name: str, path: str, depth: int) -> bool:
        if depth > _DEEPEST:
            return False
        directory = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
        try:
            left = False
            for one in os.listdir(directory):  # noqa: PTH208  no path
                below = f"{path}/{one}" if len(path) < _LONGEST else path
                left |= not self._remove(directory, one, below, depth + 1)
            return not left
        finally:
            os.close(directory)

    def _in_no_backup(self, parent: int, name: str, found: os.stat_result) -> bool:
        if not stat.S_ISREG(found.st_mode):
            return False
        try:
            os.close(os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=parent))
        except OSError:
            return True
        return found.st_size > self._spared.largest


def _alike(parent: int, name: str) -> list[str]:
    """Names in a directory that restic lists so. Of several that are no UTF-8 the last one counts as the directory."""
    if _UNKNOWN not in name:
        return [name]
    return [one for one in os.listdir(parent) if _NO_UTF8.sub(_UNKNOWN, one) == name]
