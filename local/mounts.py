"""Mounts below our directories: found in the kernel's own list, so that none is forgotten."""

from __future__ import annotations

import ctypes
import os
import re
from pathlib import Path

_MNT_DETACH = 2


def mount_points(mountinfo: str) -> list[str]:
    r"""List mount points in the order they were mounted; the kernel writes space, tab, newline and \ as octal."""
    rows = [line.split(" ") for line in mountinfo.splitlines()]
    return [re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), row[4]) for row in rows if len(row) > 4]


def below(points: list[str], root: Path) -> list[str]:
    """Pick those at or below `root`, the last mounted first: the order in which they can be unmounted."""
    prefix = str(root)
    return [point for point in reversed(points) if point == prefix or point.startswith(prefix + "/")]


def mounted_below(root: Path) -> list[str]:
    """List what is mounted at or below `root` now, the last first."""
    return below(mount_points(Path("/proc/self/mountinfo").read_text()), root)


def unmount_all(root: Path) -> list[str]:
    """Unmount everything at or below `root`; returns what would not go.

    Lazily, since a process of somebody else may still look at it: the name is free at once all the same.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    return [
        f"{point}: {os.strerror(ctypes.get_errno())}"
        for point in mounted_below(root)
        if libc.umount2(os.fsencode(point), _MNT_DETACH) != 0
    ]
