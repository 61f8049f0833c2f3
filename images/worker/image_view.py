"""What a container's image shows of the job that runs in it: its devices, its /tmp, its user's home.

The image is a directory somewhere in the jail, of the job's user or another's, and tasks are to see it as their root
file system (images/spank/image.c). What has to be in there of the node and of the job is mounted over the image's own
directories, in the job's cell only, and goes with the cell. The path is a user's, and this has CAP_SYS_ADMIN: nothing
is made, no link is followed, and what is shown is what the cell shows already.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from images.common.gpu_view import DIRECTORY as GPU_DIRECTORY
from images.common.jail_view import SPOOL, Bind, JailViewError, open_inside
from images.common.process import CannotGoOnError

if TYPE_CHECKING:
    from images.worker.cells import Mounts

MOST_IMAGES: Final = 8
"""Images of one job. Each takes about fifty mounts, of which the kernel lets a pod have 100,000."""

LAST: Final = "/proc"
"""Mounted last: an image that has it has all."""

NEEDED: Final = ("/sys", "/dev", "/tmp", LAST)
"""An image that lacks one of these is refused: its programs would fail in strange ways."""

_SHOWN: Final = (
    Bind(path="/home"),
    Bind(path="/run/munge"),
    Bind(path="/run/slurm"),
    # With what is mounted below, which is read-only: the configuration of slurmd.
    Bind(path=str(SPOOL), recursive=True),
    Bind(path=GPU_DIRECTORY, recursive=True),
    Bind(path="/tmp"),
    Bind(path="/dev", recursive=True),
    Bind(path="/sys", recursive=True),
    Bind(path=LAST, recursive=True),
)
_FILES: Final = ("/etc/resolv.conf", "/etc/hosts", "/etc/hostname")

_NO_IMAGES_IN: Final = ("proc", "sys", "dev", "run", "var")
"""An image in what is shown with all that is mounted below it would double that, and the next one again."""


class ImageError(CannotGoOnError):
    """A path that no image can be at; the message says why."""


def show_image(mounts: Mounts, cell: Path, path: str, volumes: Sequence[str]) -> None:
    """Mount all that an image shows. A second time for the same path does nothing.

    `path`: as the job sees it, without links. `volumes`: other paths of the jail, shown where the image has a directory
    for them. Raises ImageError or JailViewError before anything is mounted, and OSError.
    """
    _check(path)
    shown = [point for point in mounts.points() if point.startswith(f"{cell}/") and point.endswith(LAST)]
    if f"{cell}{path}{LAST}" in shown:
        return
    if len(shown) > MOST_IMAGES:  # with the cell's own
        raise ImageError(f"a job can have {MOST_IMAGES} images on a node, and this one has them")
    with contextlib.ExitStack() as opened:
        pairs = []
        for bind, kind in [*((Bind(path=volume), "directory") for volume in volumes), *_ours()]:
            source = _open(opened, cell, bind.path, kind)
            target = _open(opened, cell, path + bind.path, kind)
            if target is None and bind.path in NEEDED:
                raise ImageError(f"it has no directory {bind.path}, and none could be made")
            if source is not None and target is not None:
                pairs.append((source, target, bind.recursive))
        for source, target, recursive in pairs:
            mounts.copy(Path(f"/proc/self/fd/{source}"), target, recursive=recursive)


def _ours() -> list[tuple[Bind, str]]:
    return [*((Bind(path=file), "file") for file in _FILES), *((bind, "directory") for bind in _SHOWN)]


def _check(path: str) -> None:
    beginning, *parts = path.split("/")
    if beginning or not parts or any(part in {"", ".", ".."} for part in parts):
        raise ImageError("this is no absolute path without links")
    if parts[0] in _NO_IMAGES_IN:
        raise ImageError(f"images cannot be below /{parts[0]}")


def _open(opened: contextlib.ExitStack, cell: Path, path: str, kind: str) -> int | None:
    """Something of the cell; None where it is not there, or not of that kind. Messages never have a user's path."""
    try:
        descriptor = open_inside(cell, path, make=False, kind=kind)
    except JailViewError:
        return None
    opened.callback(os.close, descriptor)
    return descriptor
