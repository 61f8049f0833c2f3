"""The cgroup that a job leaves. slurmstepd removes it, unless the kernel has ended that."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

SCOPE: Final = "system.slice/*_slurmstepd.scope"
"""The cgroup of all jobs, by Slurm's own name, where cgroups are mounted."""


def of_job(job: str, mount: Path) -> list[Path]:
    """What is there of a job. `mount`: where cgroups are."""
    return list(mount.glob(f"{SCOPE}/job_{job}"))


def has_processes(group: Path) -> bool:
    """Whether a process is in a cgroup, or in one below it."""
    with contextlib.suppress(OSError):
        return "populated 1" in (group / "cgroup.events").read_text(encoding="ascii")
    return False


def end(group: Path) -> bool:
    """End what is in a cgroup, and remove it with all below. Returns whether it has gone: ending takes a moment."""
    kill = group / "cgroup.kill"
    with contextlib.suppress(OSError):  # it has gone meanwhile
        if kill.exists():  # Linux 5.14
            kill.write_text("1", encoding="ascii")
    for directory, _, _ in os.walk(group, topdown=False):
        with contextlib.suppress(OSError):
            Path(directory).rmdir()
    return not group.exists()
