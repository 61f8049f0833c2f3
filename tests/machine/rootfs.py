"""Which root file systems a guest machine gets."""

from __future__ import annotations

import io
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from local.images import rootfs
from local.report import PlainReport
from tests.slurm.pod import PREBUILT, lower

ROLES = ("worker", "controller", "jail")


def root_file_systems(version: str, roles: Sequence[str] = ROLES) -> dict[str, Path]:
    """Name in the guest -> root file system of an image, built first where that is necessary."""
    if PREBUILT:
        return {f"{role}-{version}": (Path(PREBUILT) / version / f"rootfs-{role}").resolve() for role in roles}
    return {f"{role}-{version}": rootfs(role, version, PlainReport()) for role in roles}


def program_layers(version: str, roles: Sequence[str] = ROLES) -> dict[str, bytes]:
    """Name of an image -> what lies over it, as an archive: the present programs, where the images are prebuilt."""
    return {f"{role}-{version}": _programs(version, role) for role in roles} if PREBUILT else {}


def _programs(version: str, role: str) -> bytes:
    with tempfile.TemporaryDirectory() as work:
        layer = lower(role, version, Path(work)).partition(":")[0]
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            tar.add(layer, arcname=".")
    return archive.getvalue()
