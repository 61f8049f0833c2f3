"""sshd of a worker: in gets who has a running job on the node, and into that job (images/jail/ssh_session.py).

It is a container of its own beside slurmd, with whose configuration Slurm's commands work here. No program of a user's
runs in it. PAM asks `has-job`; what of a user's stays when the last job has ended, as forwardings would, is ended here.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from images.common.boundary import keep_only
from images.common.command import Runner, run
from images.common.jail_view import LOGIN_BINDS, SPOOL, Bind
from images.common.process import program
from images.login import sshd

CONFIG: Final = Path("/usr/lib/slurmstack/images/login/worker_sshd_config")
BINDS: Final = (*LOGIN_BINDS, Bind(path=str(SPOOL), read_only=True))
"""slurmd keeps Slurm's configuration in its spool directory."""

LOOK_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 20.0
FIRST_UID: Final = 1000
NOBODY: Final = 65534


class NoAnswerError(Exception):
    """Slurm does not say who has jobs."""


def users_with_jobs(node: str, states: str, runner: Runner = run) -> frozenset[int]:
    """Numbers of the users who have jobs in these states on the node. Raises NoAnswerError."""
    asked = ("/usr/bin/squeue", "--all", "--noheader", f"--nodelist={node}", f"--states={states}", "--format=%U")
    result = runner(asked, timeout=ANSWER_SECONDS)
    if not result.ok:
        raise NoAnswerError(result.message)
    return frozenset(int(word) for word in result.stdout.split())


def refusal(user: str, node: str, runner: Runner = run) -> str:
    """Why a user does not get in; empty: the user does."""
    try:
        uid = pwd.getpwnam(user).pw_uid
        if uid in users_with_jobs(node, "running", runner):
            return ""
    except KeyError:
        return f"there is no user {user}"
    except NoAnswerError as error:
        return f"slurmctld does not say whether you have a job on {node}: {error}"
    return f"you have no job on {node}"


def has_job() -> int:
    """Entry point of what PAM runs outside of the jail, as root. sshd shows what it prints to who is refused."""
    said = refusal(os.environ.get("PAM_USER", ""), socket.gethostname())
    sys.stdout.write(said)
    return 1 if said else 0


def processes(proc: Path = Path("/proc")) -> Iterator[tuple[int, int]]:
    """Each process of a user in the container: its number, and its user's."""
    for status in proc.glob("[0-9]*/status"):
        try:
            text = status.read_text(encoding="ascii", errors="replace")
        except OSError:  # it has ended
            continue
        uid = int(text.partition("\nUid:")[2].split(maxsplit=1)[0])
        if uid >= FIRST_UID and uid != NOBODY:
            yield int(status.parent.name), uid


def end_without_job(node: str, runner: Runner = run, proc: Path = Path("/proc")) -> None:
    """End what belongs to users without a job on the node. Raises NoAnswerError: then nobody's."""
    found = list(processes(proc))
    if not found:
        return
    allowed = users_with_jobs(node, "running,suspended", runner)
    for pid, uid in found:
        if uid not in allowed:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def start_ending(node: str, log: Callable[[str], None]) -> None:
    """Look after connections beside sshd, which this process becomes. Raises OSError where no process can be made."""
    if os.fork() != 0:
        return
    try:
        os.setsid()
        keep_only("KILL")
        while True:
            time.sleep(LOOK_SECONDS)
            try:
                end_without_job(node)
            except (NoAnswerError, OSError) as error:
                log(f"connections stay, of users without a job, too: {error}")
    finally:
        os._exit(1)


def main() -> None:
    """Entry point."""
    with program("worker-sshd") as log:
        limits = sshd.parse_limits(os.environ.get("USER_LIMITS", ""))
        # The kernel counts those of jobs, too: who has many there would not get in.
        limits.pop("nproc", None)
        start_ending(socket.gethostname(), log)
        sshd.serve(log, limits, config=CONFIG, binds=BINDS, access="has-job")
