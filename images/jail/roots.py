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
from images.jail.manifest import compare, read_manifest, shown

_REMOVING: Final = ".removing-"
"""In ROOTS: what is left of roots that are being removed. No root can be called so."""

JAIL: Final = Path("/jail")
SIZE_SECONDS: Final = "30"
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


def _empty(trash: Path, log: Callable[[str], None]) -> None:
    """All in a directory goes. find(1) follows no link, however fast names change, and goes to any depth."""
    log(f"removing what is in {trash.name}")
    find = ["find", str(trash), "-xdev", "-mindepth", "1", "-delete"]
    done = subprocess.run(
        find, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace", check=False
    )
    if done.returncode != 0:
        why = done.stderr.partition("\n")[0]
        raise CannotGoOnError(f"not all could be removed ({why}); the same command goes on")


def list_roots(volume: Path, *, sizes: bool) -> list[dict[str, Any]]:
    """All roots; the first one has no name."""
    there = [*([""] if jail_roots.filled(volume, "") else []), *jail_roots.names(volume)]
    return [_told(volume, name, sizes=sizes) for name in there]


def _told(volume: Path, name: str, *, sizes: bool) -> dict[str, Any]:
    known = jail_roots.filled(volume, name)
    found = asdict(known or jail_roots.Filled(version="", release="", time=""))
    found = {"name": name, "whole": known is not None, "filled": found.pop("time"), **found}
    return found | (_size(volume, name) if sizes else {})


def _size(volume: Path, name: str) -> dict[str, Any]:
    """Bytes on the disk, without what all roots share; `more`: nobody knows, as the time was over."""
    root = jail_roots.root_of(volume, name)
    others = [f"--exclude={root / other}" for other in (*jail_roots.SHARED, jail_roots.ROOTS) if not name]
    argv = ["timeout", SIZE_SECONDS, "du", "--summarize", "--one-file-system", "--block-size=1", *others, str(root)]
    du = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    return {"bytes": int(du.stdout.partition("\t")[0] or 0), "more": not du.stdout}


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
