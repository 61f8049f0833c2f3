"""What we changed on the host outside our own directories, written down before it is done, so that `down` undoes it."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

from local import files, paths


def _path() -> Path:
    return paths.cluster() / "host.json"


def read() -> dict[str, Any]:
    """Give the record: `directories` that we made, `forwarding` of interfaces as it was."""
    try:
        found = json.loads(_path().read_text())
    except (OSError, ValueError):
        found = {}
    return {"directories": [], "forwarding": {}, **found}


def make_directory(directory: Path) -> None:
    """Make a directory of the host's (a mount point for nodes), and remember each level that was not there."""
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    if missing:
        record = read()
        record["directories"] += [str(path) for path in missing if str(path) not in record["directories"]]
        files.write_whole(_path(), json.dumps(record))
        directory.mkdir(parents=True, exist_ok=True)


def remove_directories() -> None:
    """Remove the directories that we made, the deepest first, unless somebody put something in them."""
    for name in sorted(read()["directories"], key=len, reverse=True):
        with contextlib.suppress(OSError):
            Path(name).rmdir()


def remember_forwarding(interface: str, value: str) -> None:
    """Keep how an interface's forwarding was before we turned it on; the first value counts."""
    record = read()
    if interface not in record["forwarding"]:
        record["forwarding"][interface] = value
        files.write_whole(_path(), json.dumps(record))
