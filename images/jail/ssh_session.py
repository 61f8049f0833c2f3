"""ssh to a worker: the session is a step of the user's newest job on the node, and looks like ssh to what runs in it.

sshd of a worker (images/login/worker_ssh.py) starts `ssh-session` for each session, in the jail's view of its own
container. That has srun start `ssh-task` in the job, and hands it the connection's pipes: nothing of Slurm is between
them. A terminal has to be one of the job's own: `ssh-task` makes it, and `ssh-session` is between it and sshd's.

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
import termios
import threading
import tty
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from images.common.command import Runner, run
from images.common.mountinfo import libc
from images.common.slurm_jobs import RUNNING, jobs_on

TASK: Final = "/usr/libexec/slurmstack/ssh-task"

SRUN: Final = (
    "/usr/bin/srun", "--quiet", "--overlap", "--external-launcher", "--nodes=1", "--ntasks=1", "--cpu-bind=none",
    "--mpi=none", "--job-name=ssh", "--chdir=/", "--propagate=NONE", "--input=none",
)  # fmt: skip
"""A step with all that the job has on the node, also of what other steps use: that is `--external-launcher`. Its limits
are the job's, and not those of login sessions, which hold for this program."""

KEPT: Final = (
    "USER", "LOGNAME", "SHELL", "MAIL", "PATH", "SSH_CLIENT", "SSH_CONNECTION", "SSH_TTY", "LC_", "LANG", "TERM",
    "COLORTERM", "NO_COLOR", "TZ", "TMPDIR", "LD_LIBRARY_PATH",
)  # fmt: skip
"""What the names of variables begin with that a session has. sshd has set most for `ssh-session`, and srun and the
jail's plugin for Slurm (images/spank) the rest; those of Slurm are not among them."""

KEPT_ENDS: Final = ("_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ZE_AFFINITY_MASK")
"""How those end by which programs find the job's GPUs."""

FAILED: Final = 255
"""What ssh itself ends with where there is no session."""

_PR_SET_CHILD_SUBREAPER: Final = 36
_LAST_OUTPUT_SECONDS: Final = 0.3


def newest_job(node: str, runner: Runner = run) -> list[str]:
    """Srun's options for the user's running job on the node that has started last. Raises OSError if there is none.

    Of a heterogeneous job, `11+1`, srun takes the number of the whole and the component.
    """
    for job in jobs_on(node, os.getuid(), runner):
        if job.base_state == RUNNING:
            whole, plus, component = job.id.partition("+")
            return [f"--jobid={whole}", f"--het-group={component}"] if plus else [f"--jobid={job.number}"]
    raise OSError(f"you have no job on {node}")


def environment(home: str, given: Mapping[str, str]) -> dict[str, str]:
    """A session's, as sshd would make it. `given`: the step's."""
    kept = {name: value for name, value in given.items() if name.startswith(KEPT) or name.endswith(KEPT_ENDS)}
    return {**kept, "HOME": home}


def main() -> int:
    """Entry point of `ssh-session`. Returns what the command ends with."""
    node = socket.gethostname()
    try:
        job = newest_job(node)
    except OSError as error:
        sys.stderr.write(f"{error}\n")
        return FAILED
    name = f"slurmstack-ssh-{secrets.token_hex(16)}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
        door.bind(f"\0{name}")
        door.listen()
        # In a session of its own: it ends with the step, and not with the connection.
        step = subprocess.Popen(
            [*SRUN, *job, f"--nodelist={node}", TASK, name],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        said = _follow(door, step)
    if said:
        return int(said)
    _, complaint = step.communicate()
    sys.stderr.buffer.write(complaint)
    return step.returncode or FAILED


def _follow(door: socket.socket, step: subprocess.Popen[bytes]) -> bytes:
    """What the task says at the end; nothing where the step has ended before."""
    ended = os.pidfd_open(step.pid)
    while door.fileno() in select.select([door.fileno(), ended], [], [])[0]:
        task, _ = door.accept()
        with task, contextlib.suppress(ConnectionError):
            if not _is_own(task):
                continue
            socket.send_fds(task, [b"go"], [0, 1, 2])
            return _show_terminal(task) if "SSH_TTY" in os.environ else _wait_for_end(task)
    return b""


def _wait_for_end(task: socket.socket) -> bytes:
    """What the task says, or that the client has left before. What it has started goes on.

    sshd closes standard output alone where only that is closed at the client, as by `| head`.
    """
    ends = select.poll()
    ends.register(task, select.POLLIN)
    ends.register(2, 0)
    return task.recv(64) if task.fileno() in dict(ends.poll()) else str(FAILED).encode()


def _show_terminal(task: socket.socket) -> bytes:
    """As sshd does with its own. Where the client leaves, this process ends, and the kernel hangs up on the session."""
    received = socket.recv_fds(task, 64, 1)[1]
    if not received:
        return b""
    (terminal,) = received
    tty.setraw(0, termios.TCSANOW)
    signal.signal(signal.SIGWINCH, lambda *_: termios.tcsetwinsize(terminal, termios.tcgetwinsize(0)))
    threading.Thread(target=_copy, args=(0, terminal), daemon=True).start()
    shown = threading.Thread(target=_copy, args=(terminal, 1), daemon=True)
    shown.start()
    said = task.recv(64)
    shown.join(_LAST_OUTPUT_SECONDS)  # what the command has left behind may have it open still
    return said


def _copy(source: int, target: int) -> None:
    with contextlib.suppress(OSError):  # the terminal is gone
        while data := os.read(source, 65536):
            while data:
                data = data[os.write(target, data) :]


def _is_own(peer: socket.socket) -> bool:
    """Whether it is the same user's: any process of the pod could connect, or listen in another's place."""
    _, uid, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return bool(uid == os.getuid())


def task() -> int:
    """Entry point of `ssh-task`, in the job. Its argument is the name of the socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as session:
        session.connect(f"\0{sys.argv[1]}")
        files = socket.recv_fds(session, 64, 3)[1] if _is_own(session) else []
        if not files:  # who asked has gone meanwhile
            return FAILED
        libc().prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        code = _start(files, session).wait()
        with contextlib.suppress(OSError):
            session.send(str(code if code >= 0 else 128 - code).encode())
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()
    return 0


def _start(files: list[int], session: socket.socket) -> subprocess.Popen[bytes]:
    """The user's shell, with the connection's pipes, or on a terminal whose other end the session gets.

    This process has neither open afterwards: who reads what is written waits for the last who has.
    """
    home, command = pwd.getpwuid(os.getuid()).pw_dir, os.environ.get("SSH_ORIGINAL_COMMAND")
    env = environment(home, os.environ)
    name = Path(env["SHELL"]).name
    with contextlib.suppress(OSError):  # as sshd, which goes on without
        os.chdir(home)
    ends = []
    if "SSH_TTY" in env:
        ends = [*os.openpty()]
        termios.tcsetattr(ends[1], termios.TCSANOW, termios.tcgetattr(files[0]))
        termios.tcsetwinsize(ends[1], termios.tcgetwinsize(files[0]))
        env["SSH_TTY"] = os.ttyname(ends[1])
    stdin, stdout, stderr = [ends[1]] * 3 if ends else files
    shell = subprocess.Popen(
        [f"-{name}"] if command is None else [name, "-c", command], executable=env["SHELL"], env=env,
        preexec_fn=(lambda: os.login_tty(0)) if ends else os.setsid,  # noqa: PLW1509 - there are no threads
        stdin=stdin, stdout=stdout, stderr=stderr,
    )  # fmt: skip
    if ends:
        socket.send_fds(session, [b"terminal"], ends[:1])
    for file in (*files, *ends):
        os.close(file)
    return shell
