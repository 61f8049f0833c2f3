"""Slurm's configuration on the controller: where it comes from, and its versions on the disk.

It comes from the ConfigMap, through a watch on the API, or from its mounted copy. The watch sees a change at once;
kubelet brings it to the mounted copy up to a minute later. The copy serves at boot when the API server does not answer,
and where there is no API server at all. What has passed its check is put in force in one step:

    /var/spool/slurmctld/slurmstack/versions/<hash>/slurm.conf ...
    /var/spool/slurmctld/slurmstack/current -> versions/<hash>

They lie in the state volume: a controller that comes back after its ConfigMap was broken still has the last good one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import queue
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from images.common.files import swap_symlink, write_atomically
from images.common.kubernetes import Follower, Kube
from images.common.slurm_conf import IN_FORCE, block_of, without_block
from images.common.wait import wait_for

STATE: Final = Path("/var/spool/slurmctld")
STORE: Final = STATE / "slurmstack"
SLURM_CONF: Final = IN_FORCE
READY: Final = Path("/run/slurmstack/ready")
"""On an emptyDir shared by the containers of the pod; made once a checked configuration is in place."""

READ: Final = READY.with_name("read")
"""Beside it: the version that the pod's slurmctld has read for sure; missing while it is told to read another one."""

STARTS: Final = READY.with_name("starts")
"""Beside it: a version, and how often slurmctld has started with it; missing when it has run with it since."""

MOUNTED: Final = Path("/config/slurm")
BOOT_PATIENCE_SECONDS: Final = 3.0
RETRY_SECONDS: Final = 0.5
POLL_SECONDS: Final = 1.0

KEEP_VERSIONS: Final = 5

TOPOLOGY_CONF: Final = "topology.conf"
"""The one file of Slurm's configuration that is not in the ConfigMap: the agent makes it (topology.py)."""

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


class Changes(queue.Queue[dict[str, str]]):
    """Configurations, each different from the one before."""

    _last = ""

    def offer(self, files: dict[str, str]) -> None:
        """Put one in if it is another one."""
        version = config_hash(files)
        if version != self._last:
            self._last = version
            self.put(files)


def follow_config_map(kube: Kube, name: str, changes: Changes, log: Callable[[str], None]) -> Follower[dict[str, str]]:
    """Offers the files of a ConfigMap, first as they are and then after every change."""

    def changed(found: Mapping[str, dict[str, str]]) -> None:
        if name in found:
            changes.offer(found[name])
        else:
            log(f"there is no ConfigMap {kube.namespace}/{name}; the configuration stays as it is")

    return Follower(
        kube, kube.path("configmaps"), lambda item: dict(item.get("data") or {}), log,
        fields=f"metadata.name={name}", retry=RETRY_SECONDS, changed=changed,
    )  # fmt: skip


def first_files(
    changes: Changes, log: Callable[[str], None], mounted: Path = MOUNTED, patience: float = BOOT_PATIENCE_SECONDS
) -> dict[str, str]:
    """The first configuration: the mounted copy where the API server says nothing for a while."""
    while True:
        try:
            return changes.get(timeout=patience)
        except queue.Empty:
            if (mounted / "slurm.conf").is_file():
                log(f"taking the mounted copy of the configuration in {mounted} for now")
                changes.offer(read_files(mounted))


def follow_mounted(changes: Changes, log: Callable[[str], None]) -> None:
    """Offer the files of the mounted copy, first as they are and then after every change. Looks each second."""
    wait_for(f"{MOUNTED}/slurm.conf", (MOUNTED / "slurm.conf").is_file, log)
    while True:
        with contextlib.suppress(OSError):  # they are just exchanged
            if "slurm.conf" in (files := read_files(MOUNTED)):
                changes.offer(files)
        time.sleep(POLL_SECONDS)


@dataclass(frozen=True)
class Store:
    """The published versions."""

    root: Path = STORE

    def current(self) -> str | None:
        """Name of the version in force, or None before the first."""
        try:
            name = (self.root / "current").readlink().name
        except OSError:
            return None
        return name if self.has(name) else None

    def has(self, version: str) -> bool:
        """Whether a version is still on disk."""
        return (self._directory(version) / "slurm.conf").is_file() if version else False

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
        swap_symlink(self.root / "current", f"versions/{version}")
        versions = sorted((self.root / "versions").iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
        for path in versions[KEEP_VERSIONS:]:
            if path.name not in {version, previous}:
                shutil.rmtree(path, ignore_errors=True)

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
