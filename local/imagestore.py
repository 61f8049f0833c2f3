"""Image archives into every node's containerd, each once; and a seed from which the containerd of new nodes begins.

An import unpacks and hashes 1.5 GB, for each node of each new cluster: half a minute on two cores. The first node of a
set of archives imports them once; its containerd's directory is then kept, and later nodes get hard links to what is in
it, in about a second. That is safe: containerd never writes into a blob or a committed snapshot, and containers write
into layers of their own. Its databases, which it does write into, are copied.

    cache/containerd/<key>/containerd/    the directory, as a containerd that was stopped left it
    cache/containerd/<key>/images/        markers: these archives are in it
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from local import files, nodes, paths, processes
from local.controlplane import Setup
from local.errors import LocalError
from local.shell import run

_IMPORT_S = 900
KEEP_SEEDS = 2
"""Of about 2 GB each: now, and before the last change (or the other Slurm version)."""

_STOP_S = 30
_COPY_S = 300
_DATABASES = "*/*.db"


def load(setup: Setup, archive: Path) -> bool:
    """Import an archive (docker or OCI) on all nodes that do not have it; False when all of them had it already."""
    with ThreadPoolExecutor(len(setup.nodes)) as pool:
        return any(list(pool.map(lambda name: load_on(setup, name, archive), setup.nodes)))


def load_on(setup: Setup, node: str, archive: Path) -> bool:
    """Import on one node, unless its marker says that this very archive is there."""
    if not archive.is_file():
        raise LocalError(f"there is no image archive {archive}")
    marker = paths.node(node) / "images" / hashlib.sha256(_identity(archive).encode()).hexdigest()[:16]
    if marker.exists():
        return False
    done = nodes.ctr(setup, node, ["images", "import", str(archive.resolve())], timeout_s=_IMPORT_S)
    if done.returncode != 0:
        words = " ".join((done.stderr or done.stdout).split())[-500:]
        raise LocalError(f"{node} could not import {archive.name}: {words}", "is the disk full, the archive whole?")
    # containerd does not sync what it unpacks: after a power cut the marker must not stand for empty files.
    os.sync()
    marker.parent.mkdir(parents=True, exist_ok=True)
    marker.touch()
    return True


def furnish(setup: Setup, names: Sequence[str], archives: Sequence[Path]) -> None:
    """See that the containerd of each of these nodes runs and has these images. No kubelet of theirs may run yet.

    Only nodes whose containerd has never run begin from a seed; others import what they lack.
    """
    new = [name for name in names if _is_new(name)]
    if new and archives:
        # Without hard links, on a full disk, with something odd in the cache: each node imports.
        with suppress(OSError, LocalError):
            _sow(setup, new, archives)
    with ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(lambda name: _import(setup, name, archives), names))


def _sow(setup: Setup, names: Sequence[str], archives: Sequence[Path]) -> None:
    """Make the seed of these archives if there is none, and let new nodes begin from it."""
    seed = seed_of(setup, archives)
    if not seed.is_dir():
        first, *names = names
        _make(setup, first, archives, seed)
    for name in names:
        _plant(seed, name)
    by_use = sorted(seed.parent.iterdir(), key=lambda path: path.lstat().st_mtime, reverse=True)
    for path in by_use[KEEP_SEEDS:]:
        shutil.rmtree(path, ignore_errors=True)


def seed_of(setup: Setup, archives: Sequence[Path]) -> Path:
    """Name a seed by the containerd that made it and by the archives that are in it."""
    parts = [_identity(Path(setup.tools.path("containerd"))), *sorted(_identity(archive) for archive in archives)]
    return paths.cache() / "containerd" / hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


def _identity(path: Path) -> str:
    """Name a file's content without reading it all."""
    found = path.stat()
    return f"{path.resolve()} {found.st_size} {found.st_mtime_ns}"


def _is_new(name: str) -> bool:
    data = paths.node(name) / "containerd"
    return not any(data.iterdir()) if data.is_dir() else True


def _import(setup: Setup, name: str, archives: Sequence[Path]) -> None:
    nodes.ensure_containerd(setup, name)
    for archive in archives:
        load_on(setup, name, archive)


def _make(setup: Setup, name: str, archives: Sequence[Path], seed: Path) -> None:
    """Import into a node, then keep what its containerd has made of it. Raises OSError and LocalError."""
    _import(setup, name, archives)
    if not processes.stop(nodes.components(name)[0], grace_s=_STOP_S):
        raise LocalError(f"containerd of {name} did not end by itself: its databases may not be whole")
    with files.whole_directory(seed) as work:
        _link(paths.node(name) / "containerd", work / "containerd")
        shutil.copytree(paths.node(name) / "images", work / "images")
        os.sync()  # after a power cut a seed must not have empty files


def _plant(seed: Path, name: str) -> None:
    """Give a new node what the seed has: all of it or nothing. Raises OSError and LocalError."""
    target = paths.node(name)
    with files.whole_directory(target / "containerd") as work:
        _link(seed / "containerd", work)
    os.sync()
    shutil.copytree(seed / "images", target / "images", dirs_exist_ok=True)
    os.utime(seed)


def _link(source: Path, target: Path) -> None:
    """Make a tree of hard links, with owners, modes and attributes of the directories; databases become copies."""
    run(["cp", "--archive", "--link", "--no-target-directory", str(source), str(target)], timeout_s=_COPY_S)
    for database in (path for path in source.glob(_DATABASES) if path.is_file()):
        copy = target / database.relative_to(source)
        copy.unlink()
        shutil.copy2(database, copy)
