"""sshd of a worker: in gets who has a running job on the node, and into that job (images/jail/ssh_session.py).

It is a container of its own beside slurmd, with whose configuration Slurm's commands work here. No program of a user's
runs in it. PAM asks `has-job`; what of a user's stays when the last job has ended, as forwardings would, is ended here.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import random
import signal
import socket
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from images.common.boundary import keep_only
from images.common.cgroups import memory_limit
from images.common.command import Runner, run
from images.common.jail_view import LOGIN_BINDS, SPOOL, Bind, JailViewError, open_inside
from images.common.log import Log
from images.common.process import program
from images.common.slurm_jobs import RUNNING, SUSPENDED, base_state
from images.login import sshd

CONFIG: Final = Path("/usr/lib/slurmstack/images/login/worker_sshd_config")
BINDS: Final = (*LOGIN_BINDS, Bind(path=str(SPOOL), read_only=True))
"""slurmd keeps Slurm's configuration in its spool directory."""

JAIL: Final = Path("/jail")
SESSION: Final = "/usr/libexec/slurmstack/ssh-session"
"""In the jail: what sshd starts for who has got in."""

LOOK_SECONDS: Final = 15.0
"""From one look to the next on average: not all nodes ask slurmctld at the same moment."""

ANSWER_SECONDS: Final = 20.0


class NoAnswerError(Exception):
    """Slurm does not say who has jobs."""


def has_jobs(uid: int, node: str, states: frozenset[str], runner: Runner = run) -> bool:
    """Whether a user has a job on the node whose base state is one of these. Raises NoAnswerError.

    `--states` would miss a job that is STOPPED or SIGNALING.
    """
    asked = ("/usr/bin/squeue", "--all", "--noheader", f"--nodelist={node}", "--format=%U %T")
    result = runner([*asked, f"--user={uid}"], timeout=ANSWER_SECONDS)  # slurmctld looks through that one's jobs alone
    if "Invalid user" in result.stderr:
        # Nobody knows the number just now, as while SSSD starts: squeue shows no job then, and succeeds.
        result = runner(asked, timeout=ANSWER_SECONDS)
    if not result.ok:
        raise NoAnswerError(result.message)
    jobs = (line.split() for line in result.stdout.splitlines())
    return any(int(of) == uid and base_state(shown) in states for of, shown in jobs)


def refusal(user: str, node: str, runner: Runner = run, jail: Path = JAIL) -> str:
    """Why a user does not get in; empty: the user does."""
    try:
        os.close(open_inside(jail, SESSION, make=False, kind="file"))
    except JailViewError:
        return "this jail was filled before ssh to workers; see docs/jail.md"
    try:
        if has_jobs(pwd.getpwnam(user).pw_uid, node, frozenset({RUNNING}), runner):
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
    """Each process of a user in the container: its number, and its user's. A directory may give any number."""
    ours = {0, pwd.getpwnam("sshd").pw_uid}
    for status in proc.glob("[0-9]*/status"):
        try:
            text = status.read_text(encoding="ascii", errors="replace")
        except OSError:  # it has ended
            continue
        uid = int(text.partition("\nUid:")[2].split(maxsplit=1)[0])
        if uid not in ours:
            yield int(status.parent.name), uid


def end_without_job(node: str, runner: Runner = run, proc: Path = Path("/proc")) -> None:
    """End what belongs to users without a job on the node. Raises NoAnswerError: then nobody's more."""
    found: dict[int, list[int]] = {}
    for pid, uid in processes(proc):
        found.setdefault(uid, []).append(pid)
    for uid, pids in found.items():
        if has_jobs(uid, node, frozenset({RUNNING, SUSPENDED}), runner):
            continue
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def start_ending(node: str, log: Log) -> None:
    """Look after connections beside sshd, which this process becomes. Raises OSError where no process can be made."""
    sshd_pid = os.getpid()
    if os.fork() != 0:
        return
    try:
        os.setsid()
        # SYS_CHROOT is not for use. Root in the jail, which has KILL but not that, may not trace who has more than it:
        # our root, by /proc/PID/root, is none of its business. It holds for squeue, too, which we start.
        keep_only("KILL", "SYS_CHROOT")
        while True:
            time.sleep(LOOK_SECONDS * random.uniform(0.5, 1.5))  # noqa: S311 - no secret
            _look(node, log)
    except BaseException as error:  # noqa: BLE001 - this process must not go on as the daemon's start
        log.failure(f"nobody ends connections any more, so sshd starts again: {type(error).__name__}: {error}")
    finally:
        with contextlib.suppress(OSError):
            os.kill(sshd_pid, signal.SIGTERM)  # Kubernetes starts the container again
        os._exit(1)


def _look(node: str, log: Log) -> None:
    try:
        end_without_job(node)
    except NoAnswerError as error:
        log(f"connections stay, of users without a job, too: {error}")
    except Exception:  # noqa: BLE001 - the next look may find it mended
        log.failure(f"connections stay, of users without a job, too:\n{traceback.format_exc()}")


def limits_of(text: str, memory: int | None) -> dict[str, int]:
    """Limits by name, of users on login nodes, as they hold here. `memory`: the container's, in bytes, if limited."""
    limits = sshd.parse_limits(text)
    # The kernel counts those of jobs, too: who has many there would not get in.
    limits.pop("nproc", None)
    if memory is not None and "total_memory" in limits:
        # A login node has more: one user could take what all connections have here.
        limits["total_memory"] = min(limits["total_memory"], memory // 2)
    return limits


def main() -> None:
    """Entry point."""
    with program("worker-sshd") as log:
        limits = limits_of(os.environ.get("USER_LIMITS", ""), memory_limit())
        start_ending(socket.gethostname(), log)
        sshd.serve(log, limits, config=CONFIG, binds=BINDS, access="has-job")
