"""Copies a root file system: owners, modes, times, hard links, symbolic links and extended attributes.

Several threads copy, because a shared file system answers each small file slowly but many at once well. A file's time
is set when its content is complete; one that has the right size and time already is not copied again.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

THREADS: Final = 8


class CopyError(Exception):
    """A file could not be copied. `number` is the errno."""

    def __init__(self, path: Path, error: OSError) -> None:
        super().__init__(f"{path}: {error.strerror or error}")
        self.number = error.errno


class Progress(Protocol):
    """Is told how far the copy is."""

    def report(self, files: int, size: int) -> None:
        """Files and bytes so far; called after every file."""
        ...


@dataclass
class Tree:
    """What there is to copy; paths are relative."""

    directories: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    """Symbolic links."""
    hard_links: list[tuple[str, str]] = field(default_factory=list)
    """(another name, the name in `files`)."""
    empty_targets: list[tuple[str, bool]] = field(default_factory=list)
    """(path, is a directory): mount points, of which only an empty target is wanted."""
    bytes: int = 0


def scan(root: Path, skipped: frozenset[str]) -> Tree:
    """List everything below `root`. `skipped`: absolute paths as seen from `root` that are left as empty targets."""
    tree = Tree()
    seen: dict[tuple[int, int], str] = {}
    stack = [""]
    while stack:
        relative = stack.pop()
        for name in sorted(entry.name for entry in (root / relative).iterdir()):
            path = f"{relative}/{name}" if relative else name
            status = (root / path).lstat()
            if f"/{path}" in skipped:
                tree.empty_targets.append((path, stat.S_ISDIR(status.st_mode)))
            elif stat.S_ISDIR(status.st_mode):
                tree.directories.append(path)
                stack.append(path)
            elif stat.S_ISLNK(status.st_mode):
                tree.links.append(path)
            elif stat.S_ISREG(status.st_mode):
                identity = (status.st_dev, status.st_ino)
                if status.st_nlink > 1 and identity in seen:
                    tree.hard_links.append((path, seen[identity]))
                    continue
                seen[identity] = path
                tree.files.append(path)
                tree.bytes += status.st_size
            # Sockets, pipes and devices belong to something that runs here.
    return tree


def copy(tree: Tree, source: Path, target: Path, progress: Progress) -> None:
    """Copy everything. Raises CopyError at the first thing that fails."""
    for path in tree.directories:
        _guard(_make_directory, source, target, path)
    for path, is_directory in tree.empty_targets:
        _guard(_make_empty_directory if is_directory else _make_empty_file, source, target, path)
    for path in tree.links:
        _guard(_copy_symlink, source, target, path)
    _copy_files(tree, source, target, progress)
    for path, first in tree.hard_links:
        _guard(_make_hard_link, target / first, target, path)
    # Last and from the deepest up: writing into a directory changes its time.
    for path in reversed(tree.directories):
        _guard(_copy_attributes, source, target, path)


def _copy_files(tree: Tree, source: Path, target: Path, progress: Progress) -> None:
    def copy_batch(paths: list[str]) -> list[int]:
        return [_guard(_copy_file, source, target, path) for path in paths]

    done = size = 0
    with ThreadPoolExecutor(max_workers=THREADS) as pool:
        try:
            for copied in pool.map(copy_batch, _batches(tree.files)):
                done += len(copied)
                size += sum(copied)
                progress.report(done, size)
        except CopyError:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _batches(paths: list[str], size: int = 64) -> Iterator[list[str]]:
    for start in range(0, len(paths), size):
        yield paths[start : start + size]


_Operation = Callable[[Path, Path, str], int]


def _guard(operation: _Operation, source: Path, target: Path, path: str) -> int:
    try:
        return operation(source, target, path)
    except OSError as error:
        raise CopyError(target / path, error) from error


def _make_directory(_source: Path, target: Path, path: str) -> int:
    (target / path).mkdir(mode=0o700, exist_ok=True)
    return 0


def _make_empty_directory(_source: Path, target: Path, path: str) -> int:
    (target / path).mkdir(mode=0o755, exist_ok=True)
    return 0


def _make_empty_file(_source: Path, target: Path, path: str) -> int:
    (target / path).touch(mode=0o644)
    return 0


def _copy_symlink(source: Path, target: Path, path: str) -> int:
    link = target / path
    link.unlink(missing_ok=True)
    link.symlink_to((source / path).readlink())
    status = (source / path).lstat()
    os.lchown(link, status.st_uid, status.st_gid)
    return 0


def _copy_file(source: Path, target: Path, path: str) -> int:
    status = (source / path).lstat()
    if not _is_complete(target / path, status):
        (target / path).unlink(missing_ok=True)
        shutil.copyfile(source / path, target / path, follow_symlinks=False)
        _copy_attributes(source, target, path)
    return status.st_size


def _is_complete(path: Path, wanted: os.stat_result) -> bool:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return False
    same_attributes = (found.st_mode, found.st_uid, found.st_gid) == (wanted.st_mode, wanted.st_uid, wanted.st_gid)
    # Whole seconds: some file systems keep no more.
    return same_attributes and found.st_size == wanted.st_size and int(found.st_mtime) == int(wanted.st_mtime)


def _make_hard_link(first: Path, target: Path, path: str) -> int:
    (target / path).unlink(missing_ok=True)
    (target / path).hardlink_to(first)
    return 0


def _copy_attributes(source: Path, target: Path, path: str) -> int:
    """Owner first: changing it clears the set-user-ID bit and file capabilities. The time last: it says "complete"."""
    status = (source / path).lstat()
    os.chown(target / path, status.st_uid, status.st_gid)
    (target / path).chmod(stat.S_IMODE(status.st_mode))
    for name in os.listxattr(source / path, follow_symlinks=False):
        if name == "security.capability" or name.startswith("user."):
            os.setxattr(target / path, name, os.getxattr(source / path, name))
    os.utime(target / path, ns=(status.st_atime_ns, status.st_mtime_ns))
    return 0
