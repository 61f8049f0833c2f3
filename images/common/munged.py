"""munged: authenticates Slurm's messages. A native sidecar of every pod."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable
from pathlib import Path
from typing import Final

from images.common.files import install_secret
from images.common.process import become, drop_privileges, program

SECRET = Path("/secrets/munge/munge.key")

THREADS: Final = 64
"""Instead of two: each waits 2 s for a client that says nothing."""


def prepare(uid: int, gid: int, log: Callable[[str], None]) -> None:
    """Give munged the key and the directories with the owner and modes that it insists on.

    A Secret volume can give neither: munged refuses a key that another user owns, and a socket directory that a group
    may write.
    """
    for directory, mode in ((Path("/run/munge"), 0o755), (Path("/run/munged"), 0o700)):
        directory.mkdir(parents=True, exist_ok=True)
        os.chown(directory, uid, gid)
        directory.chmod(mode)
    install_secret("the key", SECRET, Path("/run/munged/munge.key"), log, owner=(uid, gid))


COMMAND: Final = (
    "/usr/sbin/munged", "--foreground", f"--num-threads={THREADS}", "--key-file=/run/munged/munge.key",
    "--socket=/run/munge/munge.socket.2", "--seed-file=/run/munged/munge.seed", "--pid-file=/run/munged/munge.pid",
)  # fmt: skip


def main() -> None:
    """Entry point."""
    with program("munged") as log:
        user = pwd.getpwnam("munge")
        prepare(user.pw_uid, user.pw_gid, log)
        drop_privileges(user)
        become(COMMAND, log)
