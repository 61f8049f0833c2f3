"""Versions of Slurm's configuration on the controller's disk, and the one that is in force.

    /var/spool/slurmctld/slurmstack/versions/<hash>/slurm.conf ...
    /var/spool/slurmctld/slurmstack/current -> versions/<hash>

They lie in the state volume: a controller that comes back after its ConfigMap was broken still has the last good one.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from images.common.files import swap_symlink, write_atomically
from images.controller.leaving import block_of, without_block
from images.controller.topology import TOPOLOGY_CONF

STATE: Final = Path("/var/spool/slurmctld")
STORE: Final = STATE / "slurmstack"
SLURM_CONF: Final = STORE / "current/slurm.conf"
READY: Final = Path("/run/slurmstack/ready")
"""On an emptyDir shared by the containers of the pod; made once a checked configuration is in place."""

KEEP_VERSIONS: Final = 5

Files = Mapping[str, str]
"""File name -> content: the data of the ConfigMap."""


def version_of(files: Files) -> str:
    """Name of a version: the hash of what the stack says, and one of what the agent added to it, if it did."""
    stack = {name: content for name, content in without_block(files).items() if name != TOPOLOGY_CONF}
    added = {TOPOLOGY_CONF: files.get(TOPOLOGY_CONF, ""), "leaving": block_of(files)}
    added = {name: content for name, content in added.items() if content}
    return f"{config_hash(stack)}-{config_hash(added)[:8]}" if added else config_hash(stack)


def stack_part(version: str | None) -> str | None:
    """Hash of the ConfigMap's files in the name of a version: how the stack knows it."""
    return None if version is None else version.partition("-")[0]


def config_hash(files: Files) -> str:
    """First 16 hex digits of the SHA-256 over the canonical JSON of the files; the renderer computes the same."""
    canonical = json.dumps(dict(files), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def read_files(directory: Path) -> dict[str, str]:
    """Read the files of a mounted ConfigMap or of a published version; hidden entries are kubelet's and ours."""
    return {
        path.name: path.read_text(encoding="utf-8")
        for path in sorted(directory.iterdir())
        if path.is_file() and not path.name.startswith(".")
    }


@dataclass(frozen=True)
class Store:
    """The published versions."""

    root: Path = STORE

    @property
    def current_link(self) -> Path:
        """The symbolic link to the version in force."""
        return self.root / "current"

    def current(self) -> str | None:
        """Name of the version in force, or None before the first."""
        try:
            name = self.current_link.readlink().name
        except OSError:
            return None
        return name if (self._directory(name) / "slurm.conf").is_file() else None

    def files(self, version: str) -> dict[str, str]:
        """Content of a published version."""
        return read_files(self._directory(version))

    def publish(self, files: Files) -> str:
        """Put a version in force, in one step, and return its name. The version before it stays on disk."""
        version = version_of(files)
        self._write(version, files)
        self.select(version)
        return version

    def select(self, version: str) -> None:
        """Put a version that is on disk in force; drop versions that nobody will go back to."""
        previous = self.current()
        if version == previous:
            return  # nothing to write, which a full volume would not allow
        os.utime(self._directory(version))
        swap_symlink(self.current_link, f"versions/{version}")
        self._prune(keep={version, previous})

    def _directory(self, version: str) -> Path:
        return self.root / "versions" / version

    def _write(self, version: str, files: Files) -> None:
        directory = self._directory(version)
        if directory.is_dir() and read_files(directory) == dict(files):
            return
        temporary = directory.with_name(f".{version}.{os.getpid()}")
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        for parent in (self.root, directory.parent):
            parent.chmod(0o755)
        for name, content in files.items():
            write_atomically(temporary / name, content)
        temporary.chmod(0o755)
        if directory.exists():
            shutil.rmtree(directory)
        temporary.rename(directory)

    def _prune(self, keep: set[str | None]) -> None:
        versions = sorted((self.root / "versions").iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
        for path in versions[KEEP_VERSIONS:]:
            if path.name not in keep:
                shutil.rmtree(path, ignore_errors=True)
