"""Homes in the jail."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from images.common.files import Owner
from images.common.jail_view import JailViewError, make_directory, open_inside

SKELETON: Final = "etc/skel"
MOST_FILES: Final = 2000
MOST_BYTES: Final = 32 * 2**20
DEEPEST: Final = 16
"""Bounds of what is taken of a skeleton; Debian's has three files."""

_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CHUNK: Final = 2**20


def homes_directory() -> Path | None:
    """Where the volume of homes is in this pod, below its name in the jail; None where homes are in the jail's own."""
    return Path(os.environ["HOMES"]) if os.environ.get("HOMES") else None


def make_home(jail: Path, home: str, uid: int, gid: int, root: Path | None = None) -> bool:
    """Make a home from /etc/skel, only for its owner. False where there is something of that name already.

    `root`: the one whose /etc/skel it is, if not the jail's. It appears whole: a program that looks meanwhile sees
    none. Raises JailViewError where the way to it is not made of directories: a symbolic link means another place
    outside the jail, where this runs, than inside. Where the way to the skeleton is not, the home is empty.
    """
    target = jail / home.lstrip("/")
    if os.path.lexists(target):
        return False
    above = make_directory(jail, str(Path(home).parent))
    try:
        _make(above, target.name, root or jail, (uid, gid))
    finally:
        os.close(above)
    return True


def _make(above: int, name: str, root: Path, owner: Owner) -> None:
    """All by open directories: whoever is root in the jail can put a link into the place of any of them meanwhile."""
    # No user gets in here: who owned a part of it already could put another's file where the next one is given away.
    closed = f".{name}.{os.getpid()}.new"
    try:
        os.mkdir(closed, 0o700, dir_fd=above)
        with _opened(closed, above) as place:
            os.mkdir("home", 0o700, dir_fd=place)
            with _opened("home", place) as home:
                _take_skeleton(root, home, owner)
                os.fchmod(home, 0o700)
                os.fchown(home, *owner)
            os.rename("home", name, src_dir_fd=place, dst_dir_fd=above)
    finally:
        shutil.rmtree(closed, ignore_errors=True, dir_fd=above)


@contextmanager
def _opened(name: str, directory: int, flags: int = _READ | os.O_DIRECTORY, mode: int = 0) -> Iterator[int]:
    descriptor = os.open(name, flags, mode, dir_fd=directory)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _take_skeleton(root: Path, home: int, owner: Owner) -> None:
    try:
        there = open_inside(root, SKELETON, make=False, kind="directory")
    except JailViewError:
        return
    try:
        # What is open, to be read.
        with _opened(f"/proc/self/fd/{there}", there, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC) as skeleton:
            _Taking(owner, root.stat().st_dev, MOST_FILES, MOST_BYTES).all_of(skeleton, home)
    finally:
        os.close(there)


@dataclass
class _Taking:
    """What is taken of a skeleton, and for whom."""

    owner: Owner
    device: int
    """File system of the root: what this pod has mounted somewhere in it is no part of a skeleton."""
    files: int
    bytes: int

    def all_of(self, source: int, target: int, depth: int = 0) -> None:
        """All that is in an open directory, within the bounds."""
        with os.scandir(source) as entries:
            for name in (entry.name for entry in entries):
                self.files -= 1
                if self.files < 0:
                    return
                kind = stat.S_IFMT(os.stat(name, dir_fd=source, follow_symlinks=False).st_mode)
                if kind == stat.S_IFLNK:
                    os.symlink(os.readlink(name, dir_fd=source), name, dir_fd=target)
                    os.chown(name, *self.owner, dir_fd=target, follow_symlinks=False)
                elif kind in {stat.S_IFREG, stat.S_IFDIR}:
                    with _opened(name, source, _READ) as found:
                        self._one(found, target, name, depth)

    def _one(self, found: int, target: int, name: str, depth: int) -> None:
        """A file or directory as it is open: by its name there may be another one by now."""
        status = os.fstat(found)
        mode = stat.S_IMODE(status.st_mode) & 0o777
        if status.st_dev != self.device:
            return
        if stat.S_ISDIR(status.st_mode) and depth < DEEPEST:
            os.mkdir(name, 0o700, dir_fd=target)
            with _opened(name, target) as inner:
                self.all_of(found, inner, depth + 1)
                self._give(inner, mode)
        elif stat.S_ISREG(status.st_mode) and status.st_size <= self.bytes:
            with _opened(name, target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600) as copy:
                while content := os.read(found, min(_CHUNK, self.bytes)):
                    self.bytes -= len(content)
                    _write(copy, content)
                self._give(copy, mode)

    def _give(self, made: int, mode: int) -> None:
        os.fchmod(made, mode)
        os.fchown(made, *self.owner)


def _write(copy: int, content: bytes) -> None:
    while content:
        content = content[os.write(copy, content) :]
