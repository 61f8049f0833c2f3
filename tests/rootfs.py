"""Root file systems of images, unpacked once, for tests that run daemons in them."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from local.files import whole_directory
from local.images import ensure_images, image_store
from local.report import PlainReport

_UNUSED_S = 3600
"""Those of other builds are dropped when nobody has asked for their images for this long."""


def rootfs(role: str, slurm_version: str = "24.11") -> Path:
    """Give the root file system of a role. Treat it as read-only."""
    images = ensure_images(PlainReport(), slurm_version)
    directory = images.archive.parent / f"rootfs-{role}"
    if not directory.is_dir():
        ensure_images(PlainReport(), slurm_version, in_store=True)
        with image_store(PlainReport()) as buildah:
            if not directory.is_dir():
                _forget_others(images.archive.parent)
                with whole_directory(directory) as work:
                    copy = 'cp --archive "$ROOT/." "$TARGET"'
                    buildah.read_image(images.reference(role), copy, {"TARGET": str(work)})
    return directory


def _forget_others(build: Path) -> None:
    for other in build.parent.glob("*/rootfs-*"):
        if other.parent != build and time.time() - other.parent.stat().st_mtime > _UNUSED_S:
            shutil.rmtree(other, ignore_errors=True)
