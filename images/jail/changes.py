"""What users have changed in a root since it was filled, and copying paths of one root into a new one.

Users write there meanwhile, and whoever may write below a path must not get more than he has. find(1) follows no link,
however fast names change, and looks for a limited time. tar(1) opens each file and directory below the one that it has
open, never through a link, and all that it says of it, owner, mode and content, is that of what is open. Nobody is in
the new root yet.
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Final

from images.common.files import write_atomically
from images.common.jail_roots import ROOTS, SHARED
from images.common.jail_view import JailViewError, held
from images.common.process import CannotGoOnError, RefusedError

SECONDS: Final = 300
"""For one look at a root."""

LISTED: Final = 2000
"""Changes that are named, of each kind; the others are counted."""

_NOT_COMPARED: Final = (
    *(f"/{name}" for name in (*SHARED, ROOTS, ".slurmstack", "proc", "sys", "dev", "run", "tmp", "jail", "var/tmp")),
    "/var/spool/slurmd", "/var/cache", "/var/log", "/root/.cache", "/lost+found", "/etc/ld.so.cache",
    *(f"/etc/{name}" for name in ("resolv.conf", "hosts", "hostname", ".pwd.lock", "ssh/authorized_keys.d")),
    *(f"/etc/{name}" for name in ("passwd", "shadow", "group", "gshadow", "subuid", "subgid")),
    *(f"/etc/{name}-" for name in ("passwd", "shadow", "group", "gshadow", "subuid", "subgid")),
    "/etc/sudoers.d/slurmstack",
)  # fmt: skip
"""What pods have of their own, what all roots share, what we write ourselves, and caches."""

Entry = tuple[str, int, int, int, int, int, str]
"""Kind, mode, uid, gid, size, time (whole seconds: some file systems keep no more), target of a link. Times and sizes
are those of files: they say nothing of a directory."""

_FIELDS: Final = 8
_FORMAT: Final = r"%y\0%m\0%U\0%G\0%s\0%T@\0%l\0/%P\0"


class EnoughError(Exception):
    """The time for a look is over."""


def entries(root: Path, seconds: int = SECONDS) -> Iterator[tuple[str, Entry]]:
    """All of a root that is compared, by its path; directories before what is in them. Raises EnoughError."""
    left_out = [word for path in _NOT_COMPARED for word in ("-o", "-path", f"{root}{path}")][1:]
    look = ["find", str(root), "-mindepth", "1", "(", *left_out, ")", "-prune", "-o", "-printf", _FORMAT]
    argv = ["timeout", str(seconds), *look]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        for kind, mode, uid, gid, size, moment, target, path in zip(*[_words(process.stdout)] * _FIELDS, strict=False):
            of_file = (int(size), int(float(moment))) if kind == "f" else (0, 0)
            yield path, (kind if kind in "fdl" else "?", int(mode, 8), int(uid), int(gid), *of_file, target)
    if process.returncode == 124:
        raise EnoughError(f"no more time after {seconds} s")


def _words(stream: IO[bytes]) -> Iterator[str]:
    rest = b""
    while some := stream.read(2**16):
        *words, rest = (rest + some).split(b"\0")
        yield from map(os.fsdecode, words)


def entry_of(path: Path) -> Entry | None:
    """The same of one file; None where it has gone."""
    try:
        status = path.lstat()
        target = str(path.readlink()) if stat.S_ISLNK(status.st_mode) else ""
    except OSError:
        return None
    kind = {stat.S_IFDIR: "d", stat.S_IFREG: "f", stat.S_IFLNK: "l"}.get(stat.S_IFMT(status.st_mode), "?")
    of_file = (status.st_size, int(status.st_mtime)) if kind == "f" else (0, 0)
    return kind, stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid, *of_file, target


def shown(path: str) -> str:
    """A path in a message: whatever its bytes are, and however long it is."""
    text = path if len(path) <= 300 else f"{path[:140]}...{path[-140:]}"
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def write_manifest(root: Path, path: Path) -> None:
    """Remember a root as it is now, before anybody is in it."""
    lines = [json.dumps([where, *entry]) for where, entry in entries(root)]
    write_atomically(path, "".join(f"{line}\n" for line in lines), mode=0o600)


def read_manifest(path: Path) -> dict[str, Entry] | None:
    """None where there is none: the root was filled by a version that wrote none."""
    if not path.exists():
        return None
    with path.open(encoding="utf-8") as file:
        return {where: tuple(entry) for where, *entry in map(json.loads, file)}


@dataclass
class Difference:
    """What users have done to a root."""

    added: dict[str, int] = field(default_factory=dict)
    """Path -> files and directories; of a directory that was added, with all in it."""
    changed: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=lambda: {"added": 0, "changed": 0, "removed": 0})
    incomplete: str = ""
    """Why the look ended early."""


def compare(root: Path, was: Mapping[str, Entry], seconds: int = SECONDS) -> Difference:
    """Compare a root with what it was."""
    found, rest, above = Difference(), dict(was), "\0"
    try:
        for path, entry in entries(root, seconds):
            known = rest.pop(path, None)
            if known is None:
                found.counts["added"] += 1
                if not path.startswith(above):
                    above = f"{path}/"
                top = above[:-1]
                if top in found.added or len(found.added) < LISTED:
                    found.added[top] = found.added.get(top, 0) + 1
            elif known != entry:
                found.counts["changed"] += 1
                found.changed += [path] if len(found.changed) < LISTED else []
    except EnoughError as error:
        found.incomplete = str(error)
        return found
    found.counts["removed"] = len(rest)
    found.removed = [path for path in sorted(rest) if path.rpartition("/")[0] not in rest][:LISTED]
    return found


# Carrying

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
            with held(source, str(path.parent)):
                there = os.path.lexists(source / path.relative_to("/"))
        except JailViewError:
            there = False
        found += [path] if there else []
        if not there:
            left_out += 1
            log(f"left out: {path}: there is no such path, or a link leads to it")
    if found:
        log("looking at how much there is to carry")
        _refuse_without_room([source / path.relative_to("/") for path in found], target)
    for path in found:
        log(f"carrying {path}")
        with held(source, str(path.parent)) as old, held(target, str(path.parent), make=True) as new:
            left_out += _copy(old, new, path, _unchanged(source, path, was or {}), log, image_wins=was is None)
        for above in (above for above in path.parents if above.name):
            _take_attributes(source, target, above)
    log(f"{len(found)} paths were carried; {left_out} files or directories were left out, or changed meanwhile")
    return left_out


def _take_attributes(source: Path, target: Path, path: PurePosixPath) -> None:
    """Owner and mode of a directory above a path: they keep others away."""
    with held(source, str(path)) as old, held(target, str(path)) as new:
        status, copy = os.fstat(old), Path(f"/proc/self/fd/{new}")
        os.chown(copy, status.st_uid, status.st_gid)
        copy.chmod(stat.S_IMODE(status.st_mode))


def _refuse_without_room(paths: Sequence[Path], target: Path) -> None:
    du = subprocess.run(
        ["du", "--summarize", "--total", "--block-size=1", *map(str, paths)],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, errors="replace", check=False,
    )  # fmt: skip
    # Without a word where somebody moves things meanwhile: then tar finds out.
    needed, room = int(du.stdout.split()[-2]) if du.stdout else 0, os.statvfs(target)
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
