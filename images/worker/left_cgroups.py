"""The cgroup that a job leaves: slurmstepd removes it, unless the kernel has ended that for want of memory."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from images.worker.startfiles import SCOPE


def of_job(job: str, mount: Path) -> list[Path]:
    """What is there of a job. `mount`: where cgroups are."""
    return list(mount.glob(f"{SCOPE}/job_{job}"))


def remove(group: Path) -> bool:
    """End what is in a cgroup, and remove it with all below. Returns whether it has gone: ending takes a moment."""
    with contextlib.suppress(OSError):  # a kernel before 5.14, or gone meanwhile
        file = os.open(group / "cgroup.kill", os.O_WRONLY)
        try:
            os.write(file, b"1")
        finally:
            os.close(file)
    for directory, _, _ in os.walk(group, topdown=False):
        with contextlib.suppress(OSError):
            Path(directory).rmdir()
    return not group.exists()
