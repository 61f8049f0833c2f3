"""Which root file systems a guest machine gets."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from local.images import rootfs
from local.report import PlainReport

PREBUILT = os.environ.get("SLURMSTACK_SANDBOX_IMAGES", "")
"""As in tests/slurm/pod.py."""

ROLES = ("worker", "controller", "jail")


def root_file_systems(version: str, roles: Sequence[str] = ROLES) -> dict[str, Path]:
    """Name in the guest -> root file system of an image, built first where that is necessary."""
    if PREBUILT:
        return {f"{role}-{version}": Path(PREBUILT) / version / f"rootfs-{role}" for role in roles}
    return {f"{role}-{version}": rootfs(role, version, PlainReport()) for role in roles}
