"""What is mounted in this container, as the kernel lists it."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from images.common.process import CannotGoOnError

MOUNTINFO: Final = Path("/proc/self/mountinfo")


@dataclass(frozen=True, kw_only=True)
class Mounted:
    """One line of the kernel's list."""

    point: str
    """Where it is mounted."""
    filesystem: str
    """Type of the file system: `ext4`, `virtiofs`, `overlay`, ..."""


def read_mounts(mountinfo: Path = MOUNTINFO) -> list[Mounted]:
    """Everything that is mounted in this mount namespace, in the kernel's order."""
    text = mountinfo.read_text(encoding="utf-8", errors="surrogateescape")
    return [_parse(line) for line in text.splitlines()]


def _parse(line: str) -> Mounted:
    """A line of proc_pid_mountinfo(5): the fifth field is the point, the first after `-` the type."""
    place, _, device = line.partition(" - ")
    point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), place.split(" ")[4])
    return Mounted(point=point, filesystem=device.split(" ")[0])


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
    path = PurePosixPath(directory)
    around = {path, *path.parents}
    found = [mounted for mounted in read_mounts(mountinfo) if PurePosixPath(mounted.point) in around]
    # Of several mounts at one point, the last one is what programs see.
    nearest = max(enumerate(found), key=lambda item: (len(PurePosixPath(item[1].point).parts), item[0]), default=None)
    actual = nearest[1].filesystem if nearest else "nothing"
    if actual != expected:
        raise WrongFilesystemError(
            f"{directory} is on {actual} instead of {expected}: this machine has not mounted the shared file system, "
            "and what is written here would stay on its own disk. Look at its cloud-init log and `findmnt`; a new "
            "machine mends it"
        )


def expect_volume(directory: Path) -> None:
    """Raise WrongFilesystemError unless the pod's volume is what the pod's `EXPECT_FILESYSTEM` says.

    A container sees only what was mounted when it started, so only a restart helps.
    """
    expect_filesystem(directory, os.environ.get("EXPECT_FILESYSTEM", ""))
