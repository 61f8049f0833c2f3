"""What a root was like when it had been filled, and what has changed since.

Users write in it meanwhile. find(1) follows no link, however fast names change, and goes to any depth.
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from images.common.files import write_atomically
from images.common.jail_roots import ROOTS, SHARED

SECONDS: Final = 300
"""For one look at a root: whoever may write in a directory can go on making files for as long as somebody looks."""

LISTED: Final = 2000
"""Changes that are named, of each kind; the others are counted."""

_NOT_COMPARED: Final = (
    *SHARED, ROOTS, ".slurmstack", "proc", "sys", "dev", "run", "tmp", "jail", "var/tmp", "var/spool/slurmd",
    "var/cache", "var/log", "root/.cache", "lost+found", "etc/resolv.conf", "etc/hosts", "etc/hostname",
    "etc/.pwd.lock", "etc/ssh/authorized_keys.d", "etc/sudoers.d/slurmstack", "etc/ld.so.cache",
    *(f"etc/{name}{old}" for name in ("passwd", "shadow", "group", "gshadow", "subuid", "subgid") for old in ("", "-")),
)  # fmt: skip
"""What pods have of their own, what all roots share, what we write ourselves, and caches."""

Entry = tuple[str, int, int, int, int, int, str]
"""Kind, mode, uid, gid, size, time (whole seconds: some file systems keep no more), target of a link."""

_TOLD: Final = r"%P\0%y\0%m\0%U\0%G\0%s\0%T@\0%l\0"
_FIELDS: Final = _TOLD.count(r"\0")


def shown(path: str) -> str:
    """A path in a message: whatever its bytes are, and however long it is."""
    text = path if len(path) <= 300 else f"{path[:140]}...{path[-140:]}"
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _entry(kind: str, owner: tuple[int, int, int], of_file: tuple[int, float], target: str) -> Entry:
    """`owner`: after the mode. `of_file`: size and time, which say nothing of directories and links."""
    size, moment = of_file if kind == "f" else (0, 0)
    return kind if kind in "dfl" else "?", *owner, size, int(moment), target


def entry_at(path: Path) -> Entry | None:
    """What is remembered of a file; None where there is none."""
    try:
        status = path.lstat()
        target = str(path.readlink()) if stat.S_ISLNK(status.st_mode) else ""
    except OSError:
        return None
    kind = {stat.S_IFDIR: "d", stat.S_IFREG: "f", stat.S_IFLNK: "l"}.get(stat.S_IFMT(status.st_mode), "?")
    owner = stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid
    return _entry(kind, owner, (status.st_size, status.st_mtime), target)


def write_manifest(root: Path, path: Path) -> None:
    """Remember a root as it is now, before anybody is in it."""
    lines = [json.dumps([where, *entry]) for where, entry in _entries(root, SECONDS)]
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


def _entries(root: Path, seconds: float) -> Iterator[tuple[str, Entry]]:
    """All that is compared, directories before what is in them. Raises TimeoutError."""
    left_out = [word for path in _NOT_COMPARED for word in ("-o", "-path", f"{root}/{path}")][1:]
    argv = ["find", str(root), "-mindepth", "1", "(", *left_out, ")", "-prune", "-o", "-printf", _TOLD]
    with subprocess.Popen(
        ["timeout", str(seconds), *argv], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as find:
        assert find.stdout is not None
        fields: list[bytes] = []
        rest = b""
        while chunk := find.stdout.read(2**16):
            *more, rest = (rest + chunk).split(b"\0")
            fields += more
            while len(fields) >= _FIELDS:
                path, kind, mode, uid, gid, size, moment, target = map(os.fsdecode, fields[:_FIELDS])
                del fields[:_FIELDS]
                owner = int(mode, 8), int(uid), int(gid)
                yield f"/{path}", _entry(kind, owner, (int(size), float(moment)), target)
    if find.returncode == 124:
        raise TimeoutError(f"no more time, after {seconds:g} s")


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
        for path, entry in _entries(root, seconds):
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
    except TimeoutError as error:
        found.incomplete = str(error)
        return found
    gone = [path for path in sorted(rest) if path.rpartition("/")[0] not in rest]
    found.counts["removed"] = len(rest)
    found.removed = gone[:LISTED]
    return found
