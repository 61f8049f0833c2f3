"""What a root was like when it had been filled, and what has changed since."""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from images.common.files import write_atomically
from images.common.jail_roots import ROOTS, SHARED
from images.jail.walk import Bounds, EnoughError, walk

SECONDS: Final = 300.0
MOST: Final = 5_000_000
"""Bounds of one look at a root."""

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
    lines = [json.dumps([where, *entry]) for where, entry in _entries(root, Bounds(time.monotonic() + SECONDS, MOST))]
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


def _entries(root: Path, bounds: Bounds) -> Iterator[tuple[str, Entry]]:
    directory = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for found in walk(directory, bounds, not_compared):
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
    """Why the look ended early, or what it did not go into."""

    def as_json(self) -> dict[str, Any]:
        """For the command."""
        return {
            "added": self.added,
            "changed": self.changed,
            "removed": self.removed,
            "counts": self.counts,
            "incomplete": self.incomplete,
        }


def compare(root: Path, was: dict[str, Entry], bounds: Bounds | None = None) -> Difference:
    """Compare a root with what it was."""
    bounds = bounds or Bounds(time.monotonic() + SECONDS, MOST)
    found, rest, above = Difference(), dict(was), ""
    try:
        for path, entry in _entries(root, bounds):
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
    if bounds.too_deep:
        found.incomplete = f"not gone into, as it is too deep: {bounds.too_deep[0]}"
    return found
