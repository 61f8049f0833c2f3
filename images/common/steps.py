"""Job steps of this pod, seen without slurmctld: processes of slurmstepd.

Whoever starts a program chooses its name and its title. So a step is what runs the pod's own slurmstepd, as root.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from images.common.files import lines_in, text_of

PROC: Final = Path("/proc")

SLURMSTEPD: Final = "usr/sbin/slurmstepd"
"""Below the root directory, in which /proc is too."""


def user_of(pid: int, proc: Path = PROC) -> int | None:
    """Number of the user whose process it is; None if it cannot be told.

    From `status`: the owner of the directory is root for programs that the kernel protects from looks.
    """
    try:
        for line in lines_in(text_of(proc / str(pid) / "status")):
            if line.startswith("Uid:"):
                return int(line.split()[1])
    except (OSError, ValueError, IndexError):
        pass
    return None


def is_step(pid: int, proc: Path = PROC) -> bool:
    """Whether it is a slurmstepd. Of the programs of others root without CAP_SYS_PTRACE sees no file: these are not."""
    try:
        theirs, ours = (proc / str(pid) / "exe").stat(), (proc.parent / SLURMSTEPD).stat()
    except OSError:
        return False
    return (theirs.st_dev, theirs.st_ino) == (ours.st_dev, ours.st_ino) and user_of(pid, proc) == 0


def local_steps(proc: Path = PROC) -> int:
    """How many job steps run in this pod."""
    return sum(entry.name.isdigit() and is_step(int(entry.name), proc) for entry in proc.iterdir())
