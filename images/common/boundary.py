"""What keeps users away from what is the pod's: owners and modes.

Kubernetes makes an emptyDir for everybody to write, without the sticky bit. So each program that shares directories
with users puts them right before it shows them anything.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

RUN_SLURM: Final = Path("/run/slurm")
"""Where all Slurm commands of the pod and of the jail find their configuration: who writes here runs code as others."""


def own_directory(directory: Path, uid: int = 0, gid: int = 0) -> None:
    """Make a directory, or take one that is there: only its owner may write in it."""
    directory.mkdir(parents=True, exist_ok=True)
    directory.chmod(0o755)
    os.chown(directory, uid, gid)
