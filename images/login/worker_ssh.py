"""sshd of a worker: in gets who has a running job on the node, and into that job (images/jail/ssh_session.py).

It is a container of its own beside slurmd, with whose configuration Slurm's commands work here. No program of a user's
runs in it. PAM asks `has-job`; what of a user's stays when the last job has ended, as forwardings would, is ended here.
"""

from __future__ import annotations

import os
import pwd
import random
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Final

from images.common.boundary import keep_only
from images.common.command import Runner, run
from images.common.jail_view import LOGIN_BINDS, SPOOL, Bind, JailViewError, open_inside
from images.common.log import Log
from images.common.process import program
from images.common.slurm_jobs import RUNNING, SUSPENDED, jobs_on
from images.login import sshd

CONFIG: Final = Path("/usr/lib/slurmstack/images/login/worker_sshd_config")
BINDS: Final = (*LOGIN_BINDS, Bind(path=str(SPOOL), read_only=True))
"""slurmd keeps Slurm's configuration in its spool directory."""

JAIL: Final = Path("/jail")
SESSION: Final = "/usr/libexec/slurmstack/ssh-session"
"""In the jail: what sshd starts for who has got in."""

LOOK_SECONDS: Final = 15.0
"""From one look to the next on average: not all nodes ask slurmctld at the same moment."""


def refusal(user: str, node: str, runner: Runner = run, jail: Path = JAIL) -> str:
    """Why a user does not get in; empty: the user does."""
    try:
        os.close(open_inside(jail, SESSION, make=False, kind="file"))
        jobs = jobs_on(node, pwd.getpwnam(user).pw_uid, runner)
    except JailViewError:
        return "this jail is older than ssh to workers: it needs a new root (slurmstack:jail.root), see docs/jail.md"
    except OSError as error:
        return str(error)
    return "" if any(job.base_state == RUNNING for job in jobs) else f"you have no job on {node}"


def has_job() -> int:
    """Entry point of what PAM runs outside of the jail, as root. sshd shows what it prints to who is refused."""
    said = refusal(os.environ["PAM_USER"], socket.gethostname())
    sys.stdout.write(said)
    return 1 if said else 0


def end_without_job(node: str, runner: Runner = run) -> None:
    """End what belongs to users without a job on the node. Raises OSError where Slurm does not say who has one."""
    ours = {0, pwd.getpwnam("sshd").pw_uid}
    found = runner(["/usr/bin/ps", "-eo", "ruid="])
    if not found.ok:
        raise OSError(found.message)
    for uid in {int(word) for word in found.stdout.split()} - ours:
        if not any(job.base_state in {RUNNING, SUSPENDED} for job in jobs_on(node, uid, runner)):
            runner(["/usr/bin/pkill", "-KILL", "--uid", str(uid)])


def start_ending(node: str, log: Log) -> None:
    """Look after connections beside sshd, which this process becomes. Raises OSError where no process can be made."""
    sshd_pid = os.getpid()
    if os.fork() != 0:
        return
    try:
        os.setsid()
        # SYS_CHROOT is not for use. Root in the jail, which has KILL but not that, may not trace who has more than it:
        # our root, by /proc/PID/root, is none of its business. It holds for what we start, too.
        keep_only("KILL", "SYS_CHROOT")
        while True:
            time.sleep(LOOK_SECONDS * random.uniform(0.5, 1.5))  # noqa: S311 - no secret
            try:
                end_without_job(node)
            except OSError as error:
                log(f"connections stay, of users without a job, too: {error}")
    except BaseException as error:  # noqa: BLE001 - this process must not go on as the daemon's start
        log.failure(f"nobody ends connections any more, so sshd starts again: {type(error).__name__}: {error}")
    finally:
        os.kill(sshd_pid, signal.SIGTERM)  # Kubernetes starts the container again
        os._exit(1)


def main() -> None:
    """Entry point."""
    with program("worker-sshd") as log:
        start_ending(socket.gethostname(), log)
        sshd.serve(log, config=CONFIG, binds=BINDS, access="has-job")
