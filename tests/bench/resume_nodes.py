"""Nodes of `resume`, in one pod: starts a worker's own program for each line `NAME PORT` that it reads.

A node shares its root file system, address, process list and munged with all others; its port, host name, /run and
spool directory are its own. Python is started once for all, which saves a tenth of a second of CPU for each.
"""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import sys
from typing import Any, NoReturn

sys.path.insert(0, "/usr/lib/slurmstack")
from images.worker import slurmd

CLONE_NEWNS, CLONE_NEWUTS = 0x00020000, 0x04000000
AT_ONCE = 16
"""Programs that are not slurmd yet. With what they ask Slurm they take 30 MiB each, for a thousand too much."""

OWN_DIRECTORIES = """
mount --bind /run/munge /mnt
mount -t tmpfs -o mode=755 tmpfs /run
mkdir /run/munge
mount --bind /mnt /run/munge
mount -t tmpfs -o mode=755 tmpfs /var/spool/slurmd
"""


def become_node(name: str, port: str, *, names: int, turns: int) -> NoReturn:
    assert ctypes.CDLL(None).unshare(CLONE_NEWNS | CLONE_NEWUTS) == 0
    subprocess.run(["sh", "-ec", OWN_DIRECTORIES], check=True)
    socket.sethostname(name)
    program: Any = slurmd
    command, become = program.slurmd_command, program.become

    def tell_and_become(*what: Any, **more: Any) -> NoReturn:
        os.write(turns, b".")
        os.write(names, f"{name}\n".encode())
        sys.exit(become(*what, **more))

    program.slurmd_command = lambda controller, conf, *more: command(controller, f"{conf} Port={port}", *more)
    program.become = tell_and_become
    sys.exit(program.main())


def main() -> None:
    """Prints the names of those that have become slurmd; all that is logged is beside it."""
    names, (free, turns) = os.dup(1), os.pipe()
    os.dup2(2, 1)
    os.write(turns, b"." * AT_ONCE)
    for line in sys.stdin:
        os.read(free, 1)
        if os.fork() == 0:
            become_node(*line.split(), names=names, turns=turns)


if __name__ == "__main__":
    main()
