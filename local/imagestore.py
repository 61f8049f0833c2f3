"""Image archives into every node's containerd, each once."""

from __future__ import annotations

import hashlib
import json
import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from local import nodes, paths
from local.errors import LocalError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from local.controlplane import Setup

_IMPORT_S = 900


def load(setup: Setup, archive: Path) -> list[str]:
    """Import an archive (docker or OCI) on all nodes that do not have it; returns the nodes that took it."""
    names = [nodes.name_of(index) for index in range(setup.nodes)]
    with ThreadPoolExecutor(len(names)) as pool:
        taken = list(pool.map(lambda name: load_on(setup, name, archive), names))
    return [name for name, new in zip(names, taken, strict=True) if new]


def load_on(setup: Setup, node: str, archive: Path) -> bool:
    """Import on one node, unless its marker says that this very content is there."""
    if not archive.is_file():
        raise LocalError(f"there is no image archive {archive}")
    marker = paths.node(node) / "images" / (hashlib.sha256(str(archive.resolve()).encode()).hexdigest()[:16] + ".json")
    if _is_marked(marker, archive):
        return False
    digest = _digest(archive)
    done = nodes.ctr(setup, node, ["images", "import", str(archive.resolve())], timeout_s=_IMPORT_S)
    if done.returncode != 0:
        words = " ".join((done.stderr or done.stdout).split())[-500:]
        raise LocalError(f"{node} could not import {archive.name}: {words}", "is the disk full, the archive whole?")
    # containerd does not sync what it unpacks: after a power cut the marker must not stand for empty files.
    os.sync()
    marker.parent.mkdir(parents=True, exist_ok=True)
    marker.write_text(json.dumps({**_stat(archive), "sha256": digest}))
    return True


def has(setup: Setup, node: str, references: Iterable[str]) -> bool:
    """Tell whether a node's containerd has all these images."""
    done = nodes.ctr(setup, node, ["images", "list", "-q"])
    return done.returncode == 0 and set(references) <= set(done.stdout.split())


def _is_marked(marker: Path, archive: Path) -> bool:
    """Compare size and time first; a file that was only touched is compared by its content."""
    try:
        found = json.loads(marker.read_text())
    except (OSError, ValueError):
        return False
    if {key: found.get(key) for key in ("size", "mtime_ns")} == _stat(archive):
        return True
    if found.get("size") == archive.stat().st_size and found.get("sha256") == _digest(archive):
        marker.write_text(json.dumps({**_stat(archive), "sha256": found["sha256"]}))
        return True
    return False


def _stat(archive: Path) -> dict[str, int]:
    found = archive.stat()
    return {"size": found.st_size, "mtime_ns": found.st_mtime_ns}


def _digest(archive: Path) -> str:
    with archive.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
