"""Image archives into every node's containerd, each once."""

from __future__ import annotations

import hashlib
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from local import nodes, paths
from local.controlplane import Setup
from local.errors import LocalError

_IMPORT_S = 900


def load(setup: Setup, archive: Path) -> list[str]:
    """Import an archive (docker or OCI) on all nodes that do not have it; returns the nodes that took it."""
    with ThreadPoolExecutor(len(setup.nodes)) as pool:
        taken = list(pool.map(lambda name: load_on(setup, name, archive), setup.nodes))
    return [name for name, new in zip(setup.nodes, taken, strict=True) if new]


def load_on(setup: Setup, node: str, archive: Path) -> bool:
    """Import on one node, unless its marker says that this very archive is there."""
    if not archive.is_file():
        raise LocalError(f"there is no image archive {archive}")
    marker = paths.node(node) / "images" / (hashlib.sha256(str(archive.resolve()).encode()).hexdigest()[:16] + ".json")
    content = _stat(archive)
    if _is_marked(marker, content):
        return False
    done = nodes.ctr(setup, node, ["images", "import", str(archive.resolve())], timeout_s=_IMPORT_S)
    if done.returncode != 0:
        words = " ".join((done.stderr or done.stdout).split())[-500:]
        raise LocalError(f"{node} could not import {archive.name}: {words}", "is the disk full, the archive whole?")
    # containerd does not sync what it unpacks: after a power cut the marker must not stand for empty files.
    os.sync()
    marker.parent.mkdir(parents=True, exist_ok=True)
    marker.write_text(json.dumps(content))
    return True


def _is_marked(marker: Path, content: dict[str, int]) -> bool:
    try:
        found = json.loads(marker.read_text())
    except (OSError, ValueError):
        return False
    return bool(found == {**found, **content})


def _stat(archive: Path) -> dict[str, int]:
    """Name the content of an archive without reading it all: one that was only touched is imported once more."""
    found = archive.stat()
    return {"size": found.st_size, "mtime_ns": found.st_mtime_ns}
