"""What a root was like when it had been filled, and what users have changed since.

They write in it meanwhile. find(1) follows no link, however fast names change, and looks for a limited time: whoever
may write in a directory can go on making files for as long as somebody looks.
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

from images.common.files import write_atomically
from images.common.jail_roots import ROOTS, SHARED

INTO: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

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


def entry_of(parent: int, name: str, status: os.stat_result) -> Entry:
    """The same of one file in an open directory."""
    kind = {stat.S_IFDIR: "d", stat.S_IFREG: "f", stat.S_IFLNK: "l"}.get(stat.S_IFMT(status.st_mode), "?")
    of_file, target = (status.st_size, int(status.st_mtime)) if kind == "f" else (0, 0), ""
    if kind == "l":
        try:
            target = os.readlink(name, dir_fd=parent)
        except OSError:
            kind = "?"
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
