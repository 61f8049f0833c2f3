"""What is mounted in this container, as the kernel lists it."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from images.common.lines import lines_in, text_of
from images.common.process import CannotGoOnError

MOUNTINFO: Final = Path("/proc/self/mountinfo")

_ASKS_EACH_TIME: Final = frozenset({"lookupcache=none", "noac"})
"""Options of NFS with which a client asks the server for each part of a path (nfs(5))."""


@dataclass(frozen=True, kw_only=True)
class Mounted:
    """One line of the kernel's list."""

    point: str
    """Where it is mounted."""
    filesystem: str
    """Type of the file system: `ext4`, `virtiofs`, `overlay`, ..."""
    options: frozenset[str] = frozenset()
    """Of the file system: `rw`, `lookupcache=none`, ..."""


def read_mounts(mountinfo: Path = MOUNTINFO) -> list[Mounted]:
    """Everything that is mounted in this mount namespace, in the kernel's order."""
    return [_parse(line) for line in lines_in(text_of(mountinfo, "surrogateescape"))]


def _parse(line: str) -> Mounted:
    """A line of proc_pid_mountinfo(5): the fifth field is the point, the first after `-` the type."""
    place, _, device = line.partition(" - ")
    point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), place.split(" ")[4])
    filesystem, *_, options = device.split(" ")
    return Mounted(point=point, filesystem=filesystem, options=frozenset(options.split(",")))


def mount_points(mountinfo: Path = MOUNTINFO) -> frozenset[str]:
    """Where something is mounted in this mount namespace."""
    return frozenset(mounted.point for mounted in read_mounts(mountinfo))


class WrongFilesystemError(CannotGoOnError):
    """A volume is not what it should be: writing to it would fill the machine's own disk."""


def expect_filesystem(directory: Path, expected: str, mountinfo: Path = MOUNTINFO) -> None:
    """Raise WrongFilesystemError unless a directory is on a file system of this type; an empty type allows any.

    A volume of the cloud is a directory of the machine, to which the machine mounts it at its start. Where that failed,
    the directory is there all the same, empty and on the machine's own disk.
    """
    if not expected:
        return
    nearest = _nearest(directory, mountinfo)
    actual = nearest.filesystem if nearest else "nothing"
    if actual != expected:
        raise WrongFilesystemError(
            f"{directory} is on {actual} instead of {expected}: this machine has not mounted the shared file system, "
            "and what is written here would stay on its own disk. Look at its cloud-init log and `findmnt`; a new "
            "machine mends it"
        )


def _nearest(directory: Path, mountinfo: Path) -> Mounted | None:
    """What a directory is on."""
    path = PurePosixPath(directory)
    around = {path, *path.parents}
    found = [mounted for mounted in read_mounts(mountinfo) if PurePosixPath(mounted.point) in around]
    # Of several mounts at one point, the last one is what programs see.
    nearest = max(enumerate(found), key=lambda item: (len(PurePosixPath(item[1].point).parts), item[0]), default=None)
    return nearest[1] if nearest else None


def remembers_names(directory: Path, mountinfo: Path = MOUNTINFO) -> bool:
    """Whether a directory is on NFS whose client believes for up to a minute that what was renamed is where it was."""
    mounted = _nearest(directory, mountinfo)
    is_nfs = mounted is not None and mounted.filesystem in {"nfs", "nfs4"}
    return is_nfs and mounted is not None and not mounted.options & _ASKS_EACH_TIME


def expect_volume(directory: Path) -> None:
    """Raise WrongFilesystemError unless the pod's volume is what the pod's `EXPECT_FILESYSTEM` says.

    A container sees only what was mounted when it started, so only a restart helps.
    """
    expect_filesystem(directory, os.environ.get("EXPECT_FILESYSTEM", ""))
