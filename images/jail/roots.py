"""roots list|diff|remove: the roots in the jail's volume, for `slurmstack jail`. Answers are JSON in the last line.

It runs with the rights of `populate`, where the whole volume is mounted. Users write in roots meanwhile.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any, Final

from images.common import jail_roots
from images.common.mountinfo import expect_volume
from images.common.process import CannotGoOnError, RefusedError, program
from images.jail.manifest import compare, read_manifest
from images.jail.removal import remove
from images.jail.walk import INTO, Bounds, EnoughError, shown, walk

JAIL: Final = Path("/jail")
SIZE_SECONDS: Final = 30.0
"""For the size of one root; users can make any number of files."""
_MOST: Final = 3_000_000


def list_roots(volume: Path, *, sizes: bool) -> list[dict[str, Any]]:
    """All roots; the first one has no name."""
    return [_told(volume, name, sizes=sizes) for name in ("", *jail_roots.names(volume)) if _is_there(volume, name)]


def _is_there(volume: Path, name: str) -> bool:
    return bool(name) or jail_roots.filled(volume, "") is not None


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
    bounds, size, more = Bounds(time.monotonic() + SIZE_SECONDS, _MOST), 0, False
    linked: set[tuple[int, int]] = set()
    try:
        root = os.open(jail_roots.root_of(volume, name), INTO)
    except OSError:
        return {"bytes": 0, "more": False}
    try:
        for found in walk(root, bounds, other.__contains__):
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
    return {"bytes": size, "more": more or bool(bounds.too_deep)}


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
    return found.as_json()


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
