"""Copying paths of one root into a new one, while users write there.

Whoever may write below such a path must not get more than he has. tar(1) opens each file and directory below the one
that it has open, never through a link, and all that it says of it, owner, mode and content, is that of what is open.
Nobody is in the new root yet.
"""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Final

from images.common.jail_view import JailViewError, open_inside
from images.common.process import CannotGoOnError, RefusedError
from images.jail.manifest import Entry, entry_of, shown

NAMED: Final = 50
"""Complaints in the log; the others are counted."""

_KEPT_FREE: Final = 20
"""The part of the volume that stays free: one of so many."""

_ATTRIBUTES: Final = ("--acls", "--xattrs", "--xattrs-include=user.*", "--xattrs-include=security.capability")
_REPORT: Final = 200_000
"""Blocks of tar's, of 10 KiB, after which the log says how far it is."""


def carry(
    source: Path,
    target: Path,
    paths: Sequence[str],
    *,
    was: Mapping[str, Entry] | None,
    log: Callable[[str], None],
) -> int:
    """Carry these paths; returns how much was left out. Raises RefusedError where there is no room for them.

    `was`: what the old root was when it had been filled: what is still as it was there is the old image's and stays
    behind. None: nobody knows, and files of the new image win. CannotGoOnError: a file may be there by half.
    """
    left_out, found = 0, []
    for path in map(PurePosixPath, paths):
        try:
            os.close(open_inside(source, str(path.parent), make=False, kind="directory"))
            there = os.path.lexists(source / path.relative_to("/"))
        except JailViewError:
            there = False
        found += [path] if there else []
        if not there:
            left_out += 1
            log(f"left out: {path}: there is no such path, or a link leads to it")
    if found:
        _refuse_without_room([source / path.relative_to("/") for path in found], target)
    for path in found:
        log(f"carrying {path}")
        with _opened(source, path.parent, make=False) as old, _opened(target, path.parent, make=True) as new:
            left_out += _copy(old, new, path, _unchanged(source, path, was or {}), log, image_wins=was is None)
        for above in (above for above in path.parents if above.name):
            _take_attributes(source, target, above)
    log(f"{len(found)} paths were carried; {left_out} files or directories were left out, or changed meanwhile")
    return left_out


@contextmanager
def _opened(root: Path, path: PurePosixPath, *, make: bool) -> Iterator[int]:
    """A directory of a root that stays the same, whatever users make of the way to it meanwhile."""
    descriptor = open_inside(root, str(path), make=make, kind="directory")
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _take_attributes(source: Path, target: Path, path: PurePosixPath) -> None:
    """Owner and mode of a directory above a path: they keep others away."""
    with _opened(source, path, make=False) as old, _opened(target, path, make=False) as new:
        status, copy = os.fstat(old), Path(f"/proc/self/fd/{new}")
        os.chown(copy, status.st_uid, status.st_gid)
        copy.chmod(stat.S_IMODE(status.st_mode))


def _refuse_without_room(paths: Sequence[Path], target: Path) -> None:
    du = subprocess.run(
        ["du", "--summarize", "--total", "--block-size=1", *map(str, paths)],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, errors="replace", check=False,
    )  # fmt: skip
    needed, room = int(du.stdout.splitlines()[-1].split()[0]), os.statvfs(target)
    free = (room.f_bavail - room.f_blocks // _KEPT_FREE) * room.f_frsize
    if needed > free:
        raise RefusedError(
            f"jail.carry: what is carried has {needed / 2**30:.1f} GiB, and the volume has room for "
            f"{max(0, free) / 2**30:.1f} GiB: make it larger (jail.size), or carry less"
        )


def _unchanged(source: Path, path: PurePosixPath, was: Mapping[str, Entry]) -> list[str]:
    """What is still as the old image brought it, as tar names it: from the path's own directory."""
    known = ((PurePosixPath(where), entry) for where, entry in was.items() if entry[0] != "d")
    return [
        str(where.relative_to(path.parent))
        for where, entry in known
        if where.is_relative_to(path) and entry_of(source / where.relative_to("/")) == entry
    ]


def _copy(
    old: int, new: int, path: PurePosixPath, unchanged: Sequence[str], log: Callable[[str], None], *, image_wins: bool
) -> int:
    """Copy one path from an open directory into another; returns the number of complaints about what is read."""
    listed = os.memfd_create("unchanged")
    os.write(listed, "".join(f"{name}\n" for name in unchanged).encode(errors="surrogateescape"))
    pack = [
        "tar", "--create", "--file=-", f"--directory=/proc/self/fd/{old}", "--sparse", "--quoting-style=escape",
        f"--checkpoint={_REPORT}", *_ATTRIBUTES, "--anchored", "--no-wildcards",
        f"--exclude-from=/proc/self/fd/{listed}", "--", path.name,
    ]  # fmt: skip
    unpack = [
        "tar", "--extract", "--file=-", f"--directory=/proc/self/fd/{new}", "--preserve-permissions",
        "--numeric-owner", "--quoting-style=escape", *_ATTRIBUTES, *(["--skip-old-files"] if image_wins else []),
    ]  # fmt: skip
    with os.fdopen(os.memfd_create("complaints"), "w+", errors="replace") as complaints:  # the container has no /tmp
        with (
            subprocess.Popen(
                pack, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, pass_fds=(old, listed)
            ) as packing,
            subprocess.Popen(unpack, stdin=packing.stdout, stderr=complaints, pass_fds=(new,)) as unpacking,
        ):
            assert packing.stdout is not None
            assert packing.stderr is not None
            packing.stdout.close()  # who unpacks has it alone: where that ends, packing ends too
            left_out = _tell(packing.stderr, log)
        os.close(listed)
        if packing.returncode not in {0, 1, 2} or unpacking.returncode != 0:
            complaints.seek(0)
            why = complaints.readline().strip() or "tar was ended"
            raise CannotGoOnError(f"{path} could not be carried as a whole: {shown(why)}")
    return left_out


def _tell(stderr: IO[bytes], log: Callable[[str], None]) -> int:
    """What tar says while it reads; returns how many files it speaks of."""
    left_out = 0
    for line in stderr:
        text = line.decode(errors="replace").strip().removeprefix("tar: ")
        if text.startswith("Write checkpoint "):
            log(f"{int(text.rpartition(' ')[2]) * 10 // 1024} MiB so far")
        elif not text.startswith("Exiting with failure status"):
            left_out += 1
            if left_out <= NAMED:
                log(f"left out, or changed meanwhile: {shown(text)}")
    return left_out
