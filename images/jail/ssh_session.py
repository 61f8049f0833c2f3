"""ssh to a worker: the session is a step of the user's newest job on the node, and looks like ssh to what runs in it.

sshd of a worker (images/login/worker_ssh.py) starts `ssh-session` for each session, in the jail's view of its own
container. That has srun start `ssh-task` in the job, and hands it the connection's pipes: nothing of Slurm is between
them. A terminal is srun's business (`--pty`), as it has to be one of the job's own.

Both talk over an abstract socket: containers of a pod share their network. `ssh-task` stays until the last process of
its session has ended, as Slurm ends what a step leaves; `ssh` returns when the command does, as launchers expect who
leave a daemon behind (Open MPI's).
"""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from images.common.command import Runner, run
from images.common.mountinfo import libc
from images.common.slurm_jobs import RUNNING, base_state

TASK: Final = "/usr/libexec/slurmstack/ssh-task"

SRUN: Final = (
    "/usr/bin/srun", "--quiet", "--overlap", "--external-launcher", "--nodes=1", "--ntasks=1", "--cpu-bind=none",
    "--mpi=none", "--job-name=ssh", "--chdir=/", "--propagate=NONE",
)  # fmt: skip
"""A step with all that the job has on the node, also of what other steps use: that is `--external-launcher`. Its limits
are the job's, and not those of login sessions, which hold for this program."""

KEPT: Final = ("SSH_", "LC_", "LANG", "TERM", "COLORTERM", "NO_COLOR", "TZ", "TMPDIR", "LD_LIBRARY_PATH")
"""What the names of variables begin with that a session has besides its user's; those of Slurm are not among them."""

KEPT_ENDS: Final = ("_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ZE_AFFINITY_MASK")
"""How those end by which programs find the job's GPUs."""

PATH: Final = "/usr/local/bin:/usr/bin:/bin:/usr/games"
FAILED: Final = 255
"""What ssh itself ends with where there is no session."""

_PR_SET_CHILD_SUBREAPER: Final = 36
_CREDENTIALS: Final = struct.Struct("3i")
_LAST_OUTPUT_SECONDS: Final = 0.3


def newest_job(node: str, runner: Runner = run) -> list[str]:
    """Srun's options for the user's running job on the node that has started last; none where there is none.

    Of a heterogeneous job, `11+1`, srun takes the number of the whole and the component. Raises OSError.
    """
    asked = ("/usr/bin/squeue", "--me", "--all", "--noheader", f"--nodelist={node}", "--sort=-S,-i")
    result = runner([*asked, "--format=%T %A %i"], timeout=60.0)
    if not result.ok:
        raise OSError(result.message)
    for line in result.stdout.splitlines():
        state, number, shown = line.split()
        if base_state(state) == RUNNING:
            whole, plus, component = shown.partition("+")
            return [f"--jobid={whole}", f"--het-group={component}"] if plus else [f"--jobid={number}"]
    return []


def environment(account: pwd.struct_passwd, given: Mapping[str, str]) -> dict[str, str]:
    """A session's, as sshd would make it. `given`: the step's."""
    kept = {name: value for name, value in given.items() if name.startswith(KEPT) or name.endswith(KEPT_ENDS)}
    kept.pop("SSH_ORIGINAL_COMMAND", None)
    own = {"USER": account.pw_name, "LOGNAME": account.pw_name, "HOME": account.pw_dir, "SHELL": _shell(account)}
    gpu_programs = "/run/slurmstack/gpu/bin"
    path = f"{PATH}:{gpu_programs}" if Path(gpu_programs).is_dir() else PATH
    return {**kept, **own, "PATH": path, "MAIL": f"/var/mail/{account.pw_name}"}


def command_line(account: pwd.struct_passwd, command: str | None) -> list[str]:
    """The shell's arguments: a login shell where no command is given."""
    name = Path(_shell(account)).name
    return [f"-{name}"] if command is None else [name, "-c", command]


def main() -> int:
    """Entry point of `ssh-session`. Returns what the command ends with."""
    node = socket.gethostname()
    try:
        job = newest_job(node)
    except OSError as error:
        sys.stderr.write(f"slurmctld does not say which job you have on {node}: {error}\n")
        return FAILED
    if not job:
        sys.stderr.write(f"you have no job on {node}\n")
        return FAILED
    terminal = "SSH_TTY" in os.environ
    name = f"slurmstack-ssh-{secrets.token_hex(16)}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
        door.bind(f"\0{name}")
        door.listen()
        # In a session of its own: it ends with the step, not with the terminal.
        step = subprocess.Popen(
            [*SRUN, *job, f"--nodelist={node}", "--pty" if terminal else "--input=none", TASK, name],
            stdin=None if terminal else subprocess.DEVNULL,
            stdout=None if terminal else subprocess.DEVNULL,
            stderr=None if terminal else subprocess.PIPE,
            start_new_session=True,
        )
        signal.signal(signal.SIGWINCH, lambda number, _: step.send_signal(number))
        said = _follow(door, step, terminal=terminal)
    if said is None:
        _, complaint = step.communicate()
        sys.stderr.buffer.write(complaint or b"")
        return step.returncode or FAILED
    code, stays = (int(word) for word in said.split())
    if terminal and stays:
        time.sleep(_LAST_OUTPUT_SECONDS)  # srun brings the end of what was written
    elif terminal:
        step.wait()
    return code


def _follow(door: socket.socket, step: subprocess.Popen[bytes], *, terminal: bool) -> bytes | None:
    """What the task says at the end; None where the step has ended before."""
    ended = os.pidfd_open(step.pid)
    while door.fileno() in select.select([door.fileno(), ended], [], [])[0]:
        task, _ = door.accept()
        if _is_own(task):
            break
        task.close()
    else:
        return None
    with task, contextlib.suppress(ConnectionError):
        socket.send_fds(task, [b"go"], [] if terminal else [0, 1, 2])
        if not terminal and _client_leaves(task):
            return f"{FAILED} 0".encode()
        return task.recv(64) or None
    return None


def _client_leaves(task: socket.socket) -> bool:
    """Wait for either end: whether the client goes before the task says anything. What it has started goes on.

    sshd closes standard output alone where only that is closed at the client, as by `| head`.
    """
    ends = select.poll()
    ends.register(task, select.POLLIN)
    ends.register(2, 0)
    return task.fileno() not in dict(ends.poll())


def _is_own(peer: socket.socket) -> bool:
    """Whether it is the same user's: any process of the pod could connect, or listen in another's place."""
    _, uid, _ = _CREDENTIALS.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return bool(uid == os.getuid())


def task() -> int:
    """Entry point of `ssh-task`, in the job. Its argument is the name of the socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as session:
        try:
            session.connect(f"\0{sys.argv[1]}")
            if not _is_own(session):
                return FAILED
            said, files, _, _ = socket.recv_fds(session, 64, 3)
        except OSError:  # who asked has gone meanwhile
            return FAILED
        if not said:
            return FAILED
        libc().prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        shell = _start(files)
        _leave_files(files)
        code = _end_of(shell, session, terminal=not files)
        _leave_files([0, 1, 2])
        with contextlib.suppress(OSError):
            session.send(f"{code} {int(_has_children())}".encode())
    while _has_children(block=True):
        pass
    return 0


def _start(files: list[int]) -> subprocess.Popen[bytes]:
    account = pwd.getpwuid(os.getuid())
    env = environment(account, os.environ)
    command = os.environ.get("SSH_ORIGINAL_COMMAND")
    if not files:
        env["SSH_TTY"] = os.ttyname(0)
    try:
        os.chdir(account.pw_dir)
    except OSError as error:
        os.write(
            files[2] if files else 2, f"Could not chdir to home directory {error.filename}: {error.strerror}\n".encode()
        )
    stdin, stdout, stderr = files or (None, None, None)
    return subprocess.Popen(
        command_line(account, command), executable=_shell(account), env=env,
        preexec_fn=os.setsid if files else _take_terminal,  # noqa: PLW1509 - there are no threads
        stdin=stdin, stdout=stdout, stderr=stderr,
    )  # fmt: skip


def _take_terminal() -> None:
    """Be the job in the foreground, as the shell of a session is."""
    os.setpgid(0, 0)
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    os.tcsetpgrp(0, os.getpid())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)


def _leave_files(files: list[int]) -> None:
    """Whoever reads what the session writes waits for the last who has them open."""
    nothing = os.open("/dev/null", os.O_RDWR)
    for file in files:
        os.dup2(nothing, file)


def _end_of(shell: subprocess.Popen[bytes], session: socket.socket, *, terminal: bool) -> int:
    """What it ends with, as a shell says it. It is hung up on where its terminal goes."""
    ended = os.pidfd_open(shell.pid)
    if session.fileno() in select.select([ended, session.fileno()], [], [])[0] and terminal:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(os.tcgetpgrp(0), signal.SIGHUP)
            shell.send_signal(signal.SIGHUP)
    code = shell.wait()
    return 128 - code if code < 0 else code


def _has_children(*, block: bool = False) -> bool:
    """Whether any of the session's processes is left; those that have ended are waited for."""
    try:
        while os.waitpid(-1, 0 if block else os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _shell(account: pwd.struct_passwd) -> str:
    return account.pw_shell or "/bin/sh"
