"""Copying the image's own root file system into a volume: owners, modes, times, links and extended attributes.

Several threads copy, because a shared file system answers each small file slowly but many at once well. A file's time
is set when its content is complete; one that has the right size and time already is not copied again.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from images.jail.prepare import make_mount_targets

THREADS: Final = 8
BATCH: Final = 64
"""Files that a thread takes at a time."""

SKIPPED: Final = frozenset({"/proc", "/sys", "/dev", "/jail", "/secrets", "/config"})
"""Of the pod, not of the image. Mount points are skipped besides; each is left as an empty target for a later mount."""

REPORT_SECONDS: Final = 2.0
NO_SPACE: Final = 3


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


def copy(tree: Tree, source: Path, target: Path, log: Callable[[str], None]) -> None:
    """Copy everything. Raises OSError at the first thing that fails."""
    for path in tree.directories:
        (target / path).mkdir(mode=0o700, exist_ok=True)
    for path, is_directory in tree.empty_targets:
        if is_directory:
            (target / path).mkdir(mode=0o755, exist_ok=True)
        else:
            (target / path).touch(mode=0o644)
    for path in tree.links:
        _copy_symlink(source / path, target / path)
    _copy_files(tree, source, target, log)
    for path, first in tree.hard_links:
        (target / path).unlink(missing_ok=True)
        (target / path).hardlink_to(target / first)
    # Last and from the deepest up: writing into a directory changes its time.
    for path in reversed(tree.directories):
        _copy_attributes(source / path, target / path)


def _copy_files(tree: Tree, source: Path, target: Path, log: Callable[[str], None]) -> None:
    def copy_batch(paths: list[str]) -> list[int]:
        return [_copy_file(source / path, target / path) for path in paths]

    done, size, due = 0, 0, time.monotonic() + REPORT_SECONDS
    batches = [tree.files[start : start + BATCH] for start in range(0, len(tree.files), BATCH)]
    with ThreadPoolExecutor(max_workers=THREADS) as pool:
        try:
            for copied in pool.map(copy_batch, batches):
                done += len(copied)
                size += sum(copied)
                if time.monotonic() >= due:
                    due = time.monotonic() + REPORT_SECONDS
                    log(f"{done} of {len(tree.files)} files, {100 * size // max(1, tree.bytes)}%")
        except OSError:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _copy_symlink(source: Path, target: Path) -> None:
    target.unlink(missing_ok=True)
    target.symlink_to(source.readlink())
    status = source.lstat()
    os.lchown(target, status.st_uid, status.st_gid)


def _copy_file(source: Path, target: Path) -> int:
    """Copy one where that is not done yet; returns its size."""
    status = source.lstat()
    if not _is_complete(target, status):
        target.unlink(missing_ok=True)
        try:
            shutil.copyfile(source, target, follow_symlinks=False)
        except OSError as error:
            error.filename = error.filename or str(target)  # a write that fails does not say where
            raise
        _copy_attributes(source, target)
    return status.st_size


def _is_complete(path: Path, wanted: os.stat_result) -> bool:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return False
    same_attributes = (found.st_mode, found.st_uid, found.st_gid) == (wanted.st_mode, wanted.st_uid, wanted.st_gid)
    # Whole seconds: some file systems keep no more.
    return same_attributes and found.st_size == wanted.st_size and int(found.st_mtime) == int(wanted.st_mtime)


def _copy_attributes(source: Path, target: Path) -> None:
    """Owner first: changing it clears the set-user-ID bit and file capabilities. The time last: it says "complete"."""
    status = source.lstat()
    os.chown(target, status.st_uid, status.st_gid)
    target.chmod(stat.S_IMODE(status.st_mode))
    for name in os.listxattr(source, follow_symlinks=False):
        if name == "security.capability" or name.startswith("user."):
            os.setxattr(target, name, os.getxattr(source, name))
    os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))


def fill(source: Path, target: Path, log: Callable[[str], None], mounted: frozenset[str]) -> int:
    """Copy all of `source`, or what an interrupted run has left to do; returns the exit code."""
    tree = scan(source, frozenset({*SKIPPED, *(point for point in mounted if point != "/")}))
    free = os.statvfs(target)
    log(f"{len(tree.files)} files, {tree.bytes / 1e6:.0f} MB; free: {free.f_bavail * free.f_frsize / 1e6:.0f} MB")
    try:
        copy(tree, source, target, log)
        make_mount_targets(target)
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            log(str(error))
            return 1
        log(f"the volume is full: it needs {tree.bytes / 1e6:.0f} MB and room for your users; make it larger")
        return NO_SPACE
    return 0
