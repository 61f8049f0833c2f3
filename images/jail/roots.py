"""roots list|diff|remove: the roots in the jail's volume, for `slurmstack jail`. Answers are JSON in the last line.

It runs with the rights of `populate`, where the whole volume is mounted. Users write in roots meanwhile.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from images.common import jail_roots
from images.common.mountinfo import expect_volume
from images.common.process import CannotGoOnError, RefusedError, program
from images.jail.accounts import FIRST_ID, LAST_ID, AccountError, is_name
from images.jail.manifest import INTO, EnoughError, compare, read_manifest, shown, walk
from images.jail.users import numbers_of

_AT_ONCE: Final = 100_000
"""Files and directories after whose removal the log says so."""

_REMOVING: Final = ".removing-"
"""In ROOTS: what is left of roots that are being removed. No root can be called so."""

JAIL: Final = Path("/jail")
SIZE_SECONDS: Final = 30.0
"""For the size of one root; users can make any number of files."""


def empty_root(volume: Path, name: str, log: Callable[[str], None]) -> None:
    """Empty a root in which nobody has been yet. The directory stays the same: pods may wait with it mounted."""
    (jail_roots.directory_of(volume, name) / jail_roots.MANIFEST).unlink(missing_ok=True)
    _empty(jail_roots.root_of(volume, name), log)


def remove(volume: Path, name: str, log: Callable[[str], None]) -> None:
    """Remove a root for good. One that was interrupted is gone on with. Raises CannotGoOnError."""
    if not jail_roots.is_name(name):
        raise RefusedError(f"{name!r} is no name of a root")
    roots = volume / jail_roots.ROOTS
    there = jail_roots.directory_of(volume, name)
    if there.is_dir() and not there.is_symlink():
        _keep_numbers(volume, name, log)
        # Out of everybody's reach at once: whoever could still come by its name would go on writing in it.
        there.rename(roots / f"{_REMOVING}{name}.{time.time_ns()}")
    elif not _left(roots):
        raise RefusedError(f"there is no root {name!r}")
    for trash in _left(roots):
        _empty(trash, log)
        trash.rmdir()
    log(f"the root {name!r} is removed")


def _left(roots: Path) -> list[Path]:
    with suppress(FileNotFoundError):
        return sorted(entry for entry in roots.iterdir() if entry.name.startswith(_REMOVING))
    return []


def _keep_numbers(volume: Path, name: str, log: Callable[[str], None]) -> None:
    """Homes of those who had an account in it stay, with their numbers."""
    try:
        numbers = numbers_of(jail_roots.root_of(volume, name))
    except (CannotGoOnError, AccountError, OSError) as error:
        log(f"its accounts cannot be read, so numbers that only it knew may be given again: {error}")
        return
    kept = {
        kind: {
            number: name if is_name(name) else "?" for number, name in found.items() if FIRST_ID <= number <= LAST_ID
        }
        for kind, found in numbers.items()
    }
    jail_roots.keep_numbers(volume, **kept)


def _empty(trash: Path, log: Callable[[str], None]) -> None:
    """All in a directory goes. find(1) follows no link, however fast names change, and goes to any depth."""
    argv = ["find", str(trash), "-xdev", "-mindepth", "1", "-delete", "-printf", "."]
    gone = 0
    with os.fdopen(os.memfd_create("complaints"), "w+") as complaints:  # the container has no /tmp
        with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=complaints) as process:
            assert process.stdout is not None
            while dots := process.stdout.read(_AT_ONCE):
                gone += len(dots)
                if len(dots) == _AT_ONCE:
                    log(f"{gone} files and directories are removed so far")
        if process.returncode != 0:
            complaints.seek(0)
            why = complaints.readline().strip()
            raise CannotGoOnError(f"not all could be removed ({why}); the same command goes on")


def list_roots(volume: Path, *, sizes: bool) -> list[dict[str, Any]]:
    """All roots; the first one has no name."""
    there = [*([""] if jail_roots.filled(volume, "") else []), *jail_roots.names(volume)]
    return [_told(volume, name, sizes=sizes) for name in there]


def _told(volume: Path, name: str, *, sizes: bool) -> dict[str, Any]:
    known = jail_roots.filled(volume, name)
    found: dict[str, Any] = {
        "name": name,
        "whole": known is not None,
        "version": known.version if known else "",
        "release": known.release if known else "",
        "filled": known.time if known else "",
        "carried_from": known.carried_from if known else None,
        "left_out": known.left_out if known else 0,
    }
    return found | (_size(volume, name) if sizes else {})


def _size(volume: Path, name: str) -> dict[str, Any]:
    """Bytes on the disk, without what all roots share; `more`: it is larger, but the time was over."""
    # The way to it and the root itself are ours; what is in it is anybody's.
    other = {f"/{name}" for name in (*jail_roots.SHARED, jail_roots.ROOTS)} if not name else set()
    until, size, more = time.monotonic() + SIZE_SECONDS, 0, False
    linked: set[tuple[int, int]] = set()
    try:
        root = os.open(jail_roots.root_of(volume, name), INTO)
    except OSError:
        return {"bytes": 0, "more": False}
    try:
        for found in walk(root, until, other.__contains__):
            status = found.status
            if status.st_nlink > 1 and not found.is_directory:
                if (status.st_dev, status.st_ino) in linked:
                    continue
                linked.add((status.st_dev, status.st_ino))
            size += status.st_blocks * 512
    except EnoughError:
        more = True
    finally:
        os.close(root)
    return {"bytes": size, "more": more}


def diff(volume: Path, name: str) -> dict[str, Any]:
    """What users have changed in a root since it was filled. Raises RefusedError."""
    if jail_roots.filled(volume, name) is None:
        raise RefusedError(f"there is no {jail_roots.called(name).removeprefix('the ')} that is whole")
    manifest = read_manifest(jail_roots.directory_of(volume, name) / jail_roots.MANIFEST)
    if manifest is None:
        raise RefusedError(
            f"{jail_roots.called(name)} was filled by a version of slurmstack that kept no list of its files"
        )
    found = compare(jail_roots.root_of(volume, name), manifest)
    found.added = {shown(path): count for path, count in found.added.items()}
    found.changed, found.removed = ([shown(path) for path in paths] for paths in (found.changed, found.removed))
    return asdict(found)


def main() -> None:
    """Entry point. `ROOT`: the root that is meant; empty: the first one."""
    with program("roots") as log:
        command, name = sys.argv[1] if len(sys.argv) > 1 else "", os.environ.get("ROOT", "")
        expect_volume(JAIL)
        if command == "list":
            print(json.dumps(list_roots(JAIL, sizes="SIZES" in os.environ)), flush=True)
        elif command == "diff":
            print(json.dumps(diff(JAIL, name)), flush=True)
        elif command == "remove":
            remove(JAIL, name, log)
        else:
            raise CannotGoOnError(f"{command!r} is no command: list, diff, remove")
