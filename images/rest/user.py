"""The user that both programs of the pod run as."""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from typing import Final

from images.common.process import drop_privileges

USER: Final = "slurmrestd"


def become_slurmrestd(*directories: Path) -> None:
    """Go on as slurmrestd, which may write these directories. In Kubernetes the pod says so already."""
    for directory in directories:
        directory.mkdir(parents=True, exist_ok=True)
    if os.getuid() != 0:
        return
    user = pwd.getpwnam(USER)
    for directory in directories:
        os.chown(directory, user.pw_uid, user.pw_gid)
    drop_privileges(user)
