"""munged: authenticates Slurm's messages. A native sidecar of every pod."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

from images.common.files import write_atomically
from images.common.log import Log
from images.common.process import become, drop_privileges, end_on_sigterm
from images.common.wait import wait_for

SECRET = Path("/secrets/munge/munge.key")

THREADS = 64
"""Each serves one client, and waits 2 s for one that says nothing. Users and slurmd have one munged: with its usual two
threads one process that only opened connections made its node stop answering (measured)."""


def prepare(secret: Path, root: Path, uid: int, gid: int) -> None:
    """Give munged the key and the directories with the owner and modes that it insists on.

    A Secret volume can give neither: munged refuses a key that another user owns, and a socket directory that a group
    may write.
    """
    for name, mode in (("run/munge", 0o755), ("run/munged", 0o700)):
        directory = root / name
        directory.mkdir(parents=True, exist_ok=True)
        os.chown(directory, uid, gid)
        directory.chmod(mode)
    write_atomically(root / "run/munged/munge.key", secret.read_bytes(), mode=0o400, owner=(uid, gid))


def main() -> None:
    """Entry point."""
    end_on_sigterm()
    log = Log("munged")
    wait_for(f"the key {SECRET}", SECRET.is_file, log)
    user = pwd.getpwnam("munge")
    prepare(SECRET, Path("/"), user.pw_uid, user.pw_gid)
    drop_privileges(user)
    own = ["--key-file=/run/munged/munge.key", "--seed-file=/run/munged/munge.seed"]
    become(["/usr/sbin/munged", "--foreground", f"--num-threads={THREADS}", *own], log)
