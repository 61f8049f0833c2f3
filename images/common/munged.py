"""munged: authenticates Slurm's messages. A native sidecar of every pod."""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NoReturn

from images.common.files import install_secret
from images.common.process import become, drop_privileges, program

SECRET = Path("/secrets/munge/munge.key")

SOCKETS: Final = Path("/run/munge")
JAIL_SOCKETS: Final = SOCKETS / "jail"
"""Of a munged of its own for users and their jobs, in pods with `FOR_JAIL`. A thread of munged serves one client, and
waits 2 s for one that says nothing: a process that only opened connections made its node stop answering, and its own
job could not be ended (measured). slurmd's and sshd's munged is out of users' reach."""

THREADS: Final = 64
"""Instead of two: users can be in one another's way all the same."""


def prepare(secret: Path, root: Path, uid: int, gid: int, log: Callable[[str], None]) -> None:
    """Give munged the key and the directories with the owner and modes that it insists on.

    A Secret volume can give neither: munged refuses a key that another user owns, and a socket directory that a group
    may write.
    """
    for name, mode in (("run/munge", 0o755), ("run/munge/jail", 0o755), ("run/munged", 0o700)):
        directory = root / name
        directory.mkdir(parents=True, exist_ok=True)
        os.chown(directory, uid, gid)
        directory.chmod(mode)
    install_secret("the key", secret, root / "run/munged/munge.key", log, owner=(uid, gid))


def command(sockets: Path, name: str) -> list[str]:
    """Command line of the munged that listens in a directory."""
    return [
        "/usr/sbin/munged", "--foreground", f"--num-threads={THREADS}", "--key-file=/run/munged/munge.key",
        f"--socket={sockets}/munge.socket.2", f"--seed-file=/run/munged/{name}.seed",
        f"--pid-file=/run/munged/{name}.pid",
    ]  # fmt: skip


def serve(commands: Sequence[Sequence[str]]) -> NoReturn:
    """Run several daemons until one of them ends, and end with it: Kubernetes starts all of them again."""
    running = [subprocess.Popen(argv) for argv in commands]

    def end(*_: object) -> None:
        for process in running:
            process.terminate()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    _, status = os.wait()
    end()
    for process in running:
        process.wait()
    sys.exit(os.waitstatus_to_exitcode(status) != 0)


def main() -> None:
    """Entry point."""
    with program("munged") as log:
        user = pwd.getpwnam("munge")
        prepare(SECRET, Path("/"), user.pw_uid, user.pw_gid, log)
        drop_privileges(user)
        own = command(SOCKETS, "munge")
        if os.environ.get("FOR_JAIL"):
            log("starting one for the pod, and one for the jail")
            serve([own, command(JAIL_SOCKETS, "jail")])
        become(own, log)
