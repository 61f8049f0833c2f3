"""The shared volumes that the stack file mounts besides the jail, bound to the users' own paths in it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from images.common.command import Runner
from images.common.jail_view import Bind, JailViewError, bind_into_jail
from images.common.mountinfo import MOUNTINFO, WrongFilesystemError, expect_filesystem, mount_points


@dataclass(frozen=True, kw_only=True)
class JailMount:
    """One volume."""

    source: str
    """Where Kubernetes mounts it in the pod."""
    path: str
    """Where users see it in the jail."""
    filesystem: str = ""
    """Type that its file system must have; empty: any."""


def parse_mounts(text: str) -> list[JailMount]:
    """The pod's `MOUNTS`, in the order of mounting: what contains another comes first."""
    mounts = [JailMount(**entry) for entry in json.loads(text or "[]")]
    return sorted(mounts, key=lambda mount: mount.path)


def bind_mounts(
    jail: Path,
    mounts: list[JailMount],
    runner: Runner,
    log: Callable[[str], None],
    mountinfo: Path = MOUNTINFO,
) -> None:
    """Bind every volume to its path, which is made in the jail where it is missing. Raises JailViewError.

    A volume that is not what it should be is not shown at all: jobs would lose what they write.
    """
    for mount in mounts:
        try:
            expect_filesystem(Path(mount.source), mount.filesystem, mountinfo)
        except WrongFilesystemError as error:
            raise JailViewError(str(error)) from error
    binds = [Bind(source=mount.source, path=mount.path, recursive=True, make=True) for mount in mounts]
    bind_into_jail(jail, binds, runner, log, lambda: mount_points(mountinfo))
