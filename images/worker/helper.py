"""The helper: the one process of a worker that keeps CAP_SYS_ADMIN, and does with it what the steps of jobs need.

slurmd and slurmstepd have none of it, as users reach them: slurmstepd even loads libraries from the jail, which root
in there can put in place. The helper loads nothing from the jail and takes a handful of requests, on a socket that is
outside of the jail and for root alone: slurmstepd connects before it goes in (images/spank/jail.c).

    mount JOB UID GID MIB  the way into the job's mount, which is made where there is none (job_mounts.py);
                        MIB: the job's memory on this node, 0 if nothing limits it, -1 if who asks does not know
    end JOB             takes the mount away, and ends what the job has left in its cgroup; `later` while a step of
                        it is still there, for which `end JOB now` does not wait (images/health/native/around.c)
    devices PROGRAM     asks the program for the cgroup that comes with it (images/worker/devices.py)
    namespaces JOB UID GID  two descriptors, for namespaces of the user's own around the job's mount, where the pool
                        allows that (images/worker/namespaces.py)

Who has been given a mount may only bring programs for its own job: slurmstepd keeps its connection in the jail.
The answer is `ok` and what was asked for, or the reason why not. Each is one message.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import selectors
import socket
import struct
import time
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple, NoReturn

from images.common.boundary import keep_only
from images.common.mountinfo import libc
from images.common.process import CannotGoOnError
from images.worker import namespaces
from images.worker.devices import DevicePrograms
from images.worker.job_mounts import JobMounts

SCOPE: Final = "system.slice/*_slurmstepd.scope"
"""The cgroup of all jobs, by Slurm's own name, where cgroups are mounted. slurmstepd removes a job's, unless the kernel
has ended that."""

CGROUPS: Final = Path("/sys/fs/cgroup")

SOCKET: Final = Path("/run/slurmstack/helper/socket")

STEPS_LOG: Final = Path("/dev/log")
"""Where slurmstepd says what goes wrong (syslog(3)): its standard error is closed. It is the same in the jail."""

_CREDENTIALS: Final = struct.Struct("3i")
"""Of the sender: process, user, group; the real ones."""

_OF_STEPS: Final = re.compile(r"<\d+>.{15} slurmstepd\S*: (.+)")
"""What syslog(3) sends: priority, time, who, and what is said."""

LONGEST: Final = 64 * 1024
"""Bytes of a message: those with programs are longer than all others."""

LONGEST_ANSWER: Final = 4095
"""As images/common/native/helper.h has room for."""

_RIGHTS: Final = ("SYS_ADMIN", "CHOWN", "DAC_OVERRIDE", "FOWNER")
"""To mount, and to make the directories of jobs."""

_PR_SET_NAME: Final = 15

PAUSE: Final = 0.1
"""Seconds between two tries to start a process."""


def _end_cgroup(group: Path) -> bool:
    """End what is in a cgroup, and remove it with all below. Returns whether it has gone: ending takes a moment."""
    kill = group / "cgroup.kill"
    with contextlib.suppress(OSError):  # it has gone meanwhile
        if kill.exists():  # Linux 5.14
            kill.write_text("1", encoding="ascii")
    for directory, _, _ in os.walk(group, topdown=False):
        with contextlib.suppress(OSError):
            Path(directory).rmdir()
    return not group.exists()


class Step(NamedTuple):
    """Who has been given a mount."""

    job: str
    cgroups: Path | None
    """Where those of the job are; None where there are none."""


class Helper:
    """Answers requests, one after the other: each takes less than a millisecond."""

    def __init__(
        self,
        job_mounts: JobMounts,
        log: Callable[[str], None],
        *,
        cgroups_of: Callable[[int], Path | None] | None = None,
        containers: bool = False,
        cgroups: Path = CGROUPS,
    ) -> None:
        """`containers`: whether users may have namespaces of their own."""
        self._job_mounts = job_mounts
        self._log = log
        self._cgroups_of = cgroups_of or job_cgroups
        self._containers = containers
        self._programs = DevicePrograms()
        self._cgroups = cgroups
        self._steps: dict[int, Step] = {}
        """By the number of the connection's descriptor."""
        self._before = set(job_mounts.jobs())
        """Jobs of before this helper, whose steps have no connection to it."""

    def answer(self, connection: int, pid: int, message: bytes, files: Sequence[int] = ()) -> str:
        """What to answer; never raises for what is asked. Empty: somebody else does. `pid`: who asks."""
        what, _, rest = message.partition(b" ")
        try:
            if what == b"devices":
                self._put_devices(connection, rest, files)
                return "ok"
            return self._do(connection, pid, *message.decode("ascii").split(" "))
        except (CannotGoOnError, OSError, ValueError, OverflowError) as error:
            self._log(f"{message[:80]!r}: {error}")
            return str(error)

    def closed(self, connection: int) -> None:
        """A step has ended, or whoever asked."""
        self._steps.pop(connection, None)

    def _do(self, connection: int, pid: int, what: str, job: str = "", *more: str) -> str:
        if connection in self._steps:
            raise ValueError(f"this is a step of job {self._steps[connection].job}")
        if not job.isdigit():
            raise ValueError(f"{job!r} is no job's number")
        match what, more:
            case "mount", (uid, gid, mib):
                path = self._job_mounts.enter(job, int(uid), int(gid), int(mib))
                self._steps[connection] = Step(job=job, cgroups=self._cgroups_of(pid))
                return f"ok {path}"
            case "end", () | ("now",):
                return "ok" if self._end(job, waits=not more) else "ok later"
            case "namespaces", (uid, gid):
                self._start_namespaces(connection, job, int(uid), int(gid))
                return ""
        raise ValueError("no such request")

    def _start_namespaces(self, connection: int, job: str, uid: int, gid: int) -> None:
        if not self._containers:
            raise ValueError("this pool allows no user namespaces (containers: true in the stack file)")
        if job not in self._job_mounts:
            raise ValueError(f"job {job} has no mount")
        # In namespaces of root's own, root in the jail would have all rights over them.
        if uid < 1 or gid < 0:
            raise ValueError("namespaces are for users, not for root")
        namespaces.answer_later(connection, self._job_mounts.path(job), (uid, gid), self._log)

    def _end(self, job: str, *, waits: bool) -> bool:
        """Whether all has gone, or nobody waits for it.

        Slurm's epilog may begin while slurmstepd still removes its own files, which it reaches by the mount. Of a job
        of before this helper nobody knows: who asks waits as long as it does, and then says `now`.
        """
        is_here = any(step.job == job for step in self._steps.values())
        if waits and (is_here or job in self._before):
            return False
        self._job_mounts.leave(job)
        self._before.discard(job)
        left = [] if is_here else list(self._cgroups.glob(f"{SCOPE}/job_{job}"))
        gone = [_end_cgroup(group) for group in left]
        self._programs.forget(job)
        return all(gone) or not waits

    def _put_devices(self, connection: int, program: bytes, files: Sequence[int]) -> None:
        step = self._steps.get(connection)
        if step is None or step.cgroups is None or len(files) != 1:
            raise ValueError("this is no step with a cgroup")
        self._programs.put(files[0], step.cgroups, program)


def job_cgroups(pid: int, proc: Path = Path("/proc"), mount: Path = CGROUPS) -> Path | None:
    """The cgroup of the job of a slurmstepd, which is in `.../JOB/STEP/slurm`; None where Slurm has made none."""
    place = (proc / str(pid) / "cgroup").read_text(encoding="ascii").strip()
    path = PurePosixPath(place.removeprefix("0::/"))
    if not place.startswith("0::/") or path.name != "slurm" or not str(path).startswith("system.slice/"):
        return None
    return mount / path.parent.parent


def serve(listening: socket.socket, helper: Helper, steps_log: socket.socket, log: Callable[[str], None]) -> NoReturn:
    """Take connections, and write what slurmstepd says into slurmd's log, for as long as this process lives."""
    with selectors.DefaultSelector() as selector:
        selector.register(listening, selectors.EVENT_READ)
        selector.register(steps_log, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is steps_log:
                    if line := _log_line(steps_log):
                        log(line)
                elif key.fileobj is listening:
                    connection, _ = listening.accept()
                    selector.register(connection, selectors.EVENT_READ)
                elif not _serve_one(_socket(key), helper):
                    selector.unregister(key.fileobj)
                    helper.closed(key.fd)
                    _socket(key).close()


def _log_line(steps_log: socket.socket) -> str:
    """What a process of root's says in slurmstepd's name. Empty for the words of users, who may write there, too."""
    text, notes, _, _ = steps_log.recvmsg(LONGEST_ANSWER, socket.CMSG_SPACE(_CREDENTIALS.size))
    of_root = any(kind == socket.SCM_CREDENTIALS and _CREDENTIALS.unpack(sent)[1] == 0 for _, kind, sent in notes)
    found = _OF_STEPS.match(text.decode(errors="replace")) if of_root else None
    return found[1] if found else ""


def _socket(key: selectors.SelectorKey) -> socket.socket:
    assert isinstance(key.fileobj, socket.socket)
    return key.fileobj


def _serve_one(connection: socket.socket, helper: Helper) -> bool:
    """Answer one message. Returns whether the connection is still there."""
    with contextlib.suppress(OSError):
        data, files, _, _ = socket.recv_fds(connection, LONGEST, 1)
        try:
            if data:
                answer = helper.answer(connection.fileno(), _peer(connection), data, files)
                # Who asks and never reads must not keep the others waiting: code of the jail may have the connection.
                if answer:
                    connection.send(answer.encode()[:LONGEST_ANSWER], socket.MSG_DONTWAIT)
                return True
        finally:
            for file in files:
                os.close(file)
    return False


def _peer(connection: socket.socket) -> int:
    """The process at the other end, when it connected."""
    return int(_CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))[0])


def start(
    make_job_mounts: Callable[[], JobMounts],
    log: Callable[[str], None],
    path: Path = SOCKET,
    *,
    containers: bool = False,
) -> None:
    """Start the helper beside the daemon that this process becomes; steps may ask as soon as this returns.

    `containers`: whether users may have namespaces of their own.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.parent.chmod(0o700)
    path.unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listening.bind(str(path))
    listening.listen(1024)
    STEPS_LOG.unlink(missing_ok=True)
    steps_log = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    steps_log.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    steps_log.bind(str(STEPS_LOG))
    STEPS_LOG.chmod(0o666)  # slurmstepd opens a job's files with their user's rights, but stays root's
    if os.fork() == 0:
        _keep_serving(listening, steps_log, make_job_mounts, log, containers=containers)
    listening.close()
    steps_log.close()


def _keep_serving(
    listening: socket.socket,
    steps_log: socket.socket,
    make_job_mounts: Callable[[], JobMounts],
    log: Callable[[str], None],
    *,
    containers: bool,
) -> NoReturn:
    """One helper after the other, should one end: who asks meanwhile waits, as the socket stays."""
    try:
        os.setsid()
        libc().prctl(_PR_SET_NAME, b"helper")
        keep_only(*_RIGHTS, *(namespaces.RIGHTS if containers else ()))

        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # one for each step
        while True:
            try:
                child = os.fork()
            except OSError:  # jobs may have so many processes that the pod or the machine has no more
                time.sleep(PAUSE)
                continue
            if child == 0:
                serve(listening, Helper(make_job_mounts(), log, containers=containers), steps_log, log)
            _, status = os.waitpid(child, 0)
            log(f"the helper ended ({os.waitstatus_to_exitcode(status)}); starting another")
            time.sleep(PAUSE)
    except BaseException as error:  # noqa: BLE001  (this process must not go on as the daemon's start)
        log(f"the helper cannot work: {type(error).__name__}: {error}")
    finally:
        os._exit(1)
