"""The cgroup that a job leaves. slurmstepd removes those of steps, unless the kernel has ended it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from images.common.kept_memory import SCOPE


def of_job(job: str, mount: Path) -> list[Path]:
    """What is there of a job. `mount`: where cgroups are."""
    return list(mount.glob(f"{SCOPE}/job_{job}"))


def end(group: Path) -> None:
    """End what is in a cgroup, and remove the steps' below it. Ending takes a moment."""
    with contextlib.suppress(OSError):  # a kernel before 5.14, or gone meanwhile
        file = os.open(group / "cgroup.kill", os.O_WRONLY)
        try:
            os.write(file, b"1")
        finally:
            os.close(file)
    for step in group.glob("step_*"):
        _remove(step)


def remove(group: Path) -> bool:
    """Remove a cgroup with all below. Returns whether it has gone: something may still be in it."""
    _remove(group)
    return not group.exists()


def _remove(group: Path) -> None:
    for directory, _, _ in os.walk(group, topdown=False):
        with contextlib.suppress(OSError):
            Path(directory).rmdir()
