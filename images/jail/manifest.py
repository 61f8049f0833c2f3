"""What a root was like when it had been filled, and what has changed since.

Users write in it meanwhile. So all is looked at by directories that are held open, never through a link, and for a
limited time: whoever may write in a directory can go on making files for as long as somebody looks.
"""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from images.common.files import write_atomically
from images.common.jail_roots import ROOTS, SHARED

DEEPEST: Final = 128
"""Levels of directories that are gone into, each held open: packages of Node.js, the deepest known, have about 40."""

INTO: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

SECONDS: Final = 300.0
"""For one look at a root."""

LISTED: Final = 2000
"""Changes that are named, of each kind; the others are counted."""

_NOT_COMPARED: Final = frozenset(
    {f"/{name}" for name in (*SHARED, ROOTS, ".slurmstack", "proc", "sys", "dev", "run", "tmp", "jail", "var/tmp")}
    | {"/var/spool/slurmd", "/var/cache", "/var/log", "/root/.cache", "/lost+found"}
    | {f"/etc/{name}" for name in ("resolv.conf", "hosts", "hostname", ".pwd.lock", "ssh/authorized_keys.d")}
    | {
        f"/etc/{name}{old}"
        for name in ("passwd", "shadow", "group", "gshadow", "subuid", "subgid")
        for old in ("", "-")
    }
    | {"/etc/sudoers.d/slurmstack", "/etc/ld.so.cache"}
)
"""What pods have of their own, what all roots share, what we write ourselves, and caches."""

Entry = tuple[str, int, int, int, int, int, str]
"""Kind, mode, uid, gid, size, time (whole seconds: some file systems keep no more), target of a link."""

_KINDS: Final = {stat.S_IFDIR: "d", stat.S_IFREG: "f", stat.S_IFLNK: "l"}


class EnoughError(Exception):
    """The time for a look is over; the message says where."""


def expect_time(until: float, path: str) -> None:
    """Raise EnoughError after `until`, of time.monotonic()."""
    if time.monotonic() > until:
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


def walk(root: int, until: float, skipped: Callable[[str], bool], path: str = "") -> Iterator[Found]:
    """All that is below an open directory, directories before what is in them. Raises EnoughError after `until`.

    `skipped`: whether a path is left out, with what is below it. Nor is what lies below `DEEPEST` levels.
    """
    with os.scandir(root) as entries:
        for entry in entries:
            below = f"{path}/{entry.name}"
            if skipped(below):
                continue
            expect_time(until, below)
            with suppress(OSError):  # it has gone, or become something else
                status = os.stat(entry.name, dir_fd=root, follow_symlinks=False)
                yield Found(path=below, name=entry.name, parent=root, status=status)
                if stat.S_ISDIR(status.st_mode) and below.count("/") < DEEPEST:
                    inner = os.open(entry.name, INTO, dir_fd=root)
                    try:
                        yield from walk(inner, until, skipped, below)
                    finally:
                        os.close(inner)


def shown(path: str) -> str:
    """A path in a message: whatever its bytes are, and however long it is."""
    text = path if len(path) <= 300 else f"{path[:140]}...{path[-140:]}"
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def not_compared(path: str) -> bool:
    """Whether a path of a root is left out, with what is below it."""
    return path in _NOT_COMPARED


def entry_of(parent: int, name: str, status: os.stat_result) -> Entry:
    """What is remembered of a file. Times and sizes of directories say nothing."""
    kind = _KINDS.get(stat.S_IFMT(status.st_mode), "?")
    size, moment = (status.st_size, int(status.st_mtime)) if kind == "f" else (0, 0)
    target = ""
    if kind == "l":
        try:
            target = os.readlink(name, dir_fd=parent)
        except OSError:
            kind = "?"
    return kind, stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid, size, moment, target


def write_manifest(root: Path, path: Path) -> None:
    """Remember a root as it is now, before anybody is in it."""
    lines = [json.dumps([where, *entry]) for where, entry in _entries(root, time.monotonic() + SECONDS)]
    write_atomically(path, "".join(f"{line}\n" for line in lines), mode=0o600)


def read_manifest(path: Path) -> dict[str, Entry] | None:
    """None where there is none: the root was filled by a version that wrote none."""
    if not path.exists():
        return None
    found: dict[str, Entry] = {}
    with path.open(encoding="utf-8") as file:
        for line in file:
            where, *entry = json.loads(line)
            found[where] = tuple(entry)
    return found


def _entries(root: Path, until: float) -> Iterator[tuple[str, Entry]]:
    directory = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for found in walk(directory, until, not_compared):
            yield found.path, entry_of(found.parent, found.name, found.status)
    finally:
        os.close(directory)


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


def compare(root: Path, was: dict[str, Entry], seconds: float = SECONDS) -> Difference:
    """Compare a root with what it was."""
    found, rest, above = Difference(), dict(was), ""
    try:
        for path, entry in _entries(root, time.monotonic() + seconds):
            if above and path.startswith(above):
                found.counts["added"] += 1
                if above[:-1] in found.added:
                    found.added[above[:-1]] += 1
                continue
            known = rest.pop(path, None)
            if known is None:
                found.counts["added"] += 1
                above = f"{path}/" if entry[0] == "d" else ""
                if len(found.added) < LISTED:
                    found.added[path] = 1
            elif known != entry:
                found.counts["changed"] += 1
                if len(found.changed) < LISTED:
                    found.changed.append(path)
    except EnoughError as error:
        found.incomplete = str(error)
        return found
    gone = [path for path in sorted(rest) if path.rpartition("/")[0] not in rest]
    found.counts["removed"] = len(rest)
    found.removed = gone[:LISTED]
    return found
