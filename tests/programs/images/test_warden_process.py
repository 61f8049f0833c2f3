"""The warden at its socket, with real processes: whom it answers, and that another takes its place."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from images.worker import warden
from images.worker.warden import LONGEST, Warden, serve
from tests.stacks import ROOT
from tests.unit.images.cells import FakeCellMounts, cells_in

UID, GID = os.getuid(), os.getgid()


class Served:
    """A warden at a socket, in a thread."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "socket"
        self.cells = cells_in(directory, FakeCellMounts())
        self.asked: list[int] = []
        kept = Warden(self.cells, lambda _: None, cgroups_of=self.asked.append)
        self.listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listening.bind(str(self.path))
        self.listening.listen()
        threading.Thread(target=serve, args=(self.listening, kept), daemon=True).start()

    def connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.settimeout(10)
        connection.connect(str(self.path))
        return connection


def ask(connection: socket.socket, request: str) -> str:
    connection.send(request.encode())
    return connection.recv(4096).decode()


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="it answers root alone")


@pytest.fixture
def served(tmp_path: Path) -> Served:
    return Served(tmp_path)


@needs_root
def test_steps_ask_at_a_socket_and_keep_their_connections(served: Served) -> None:
    with served.connect() as first, served.connect() as second:
        assert ask(first, f"cell 17 {UID} {GID} 0").endswith("/cells/17")
        assert ask(second, f"cell 18 {UID} {GID} 0").endswith("/cells/18")
        assert ask(first, f"cell 18 {UID} {GID} 0") == "this is a step of job 17"
        assert served.asked == [os.getpid()] * 2
    with served.connect() as third:
        assert ask(third, "end 17") == "ok"
    assert served.cells.jobs() == ["18"]


@needs_root
def test_nobody_but_root_is_answered(served: Served) -> None:
    """The directory keeps others away; this is for whoever gets around that."""
    served.path.chmod(0o777)
    for parent in [served.path.parent, *served.path.parent.parents][:-2]:
        parent.chmod(0o755)
    program = (
        "import socket, sys; c = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); c.settimeout(10);"
        "c.connect(sys.argv[1]); c.send(b'cell 17 1 1 0'); print(c.recv(99))"
    )
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    done = subprocess.run(
        [*nobody, "/usr/bin/python3", "-c", program, str(served.path)], capture_output=True, text=True, check=False
    )
    assert "Reset" in done.stderr or "Broken pipe" in done.stderr or done.stdout == "b''\n", done
    assert served.cells.jobs() == []


@needs_root
def test_who_never_reads_keeps_nobody_waiting(served: Served) -> None:
    """A library that root in the jail has put there may have the connection of its step."""
    with served.connect() as greedy, served.connect() as other:
        greedy.settimeout(0.5)
        with contextlib.suppress(TimeoutError, ConnectionError):
            for _ in range(100_000):
                greedy.send(b"x" * 1000)
        assert ask(other, f"cell 17 {UID} {GID} 0").endswith("/cells/17")


@needs_root
def test_a_message_with_files_or_too_long_leaves_nothing_open(served: Served) -> None:
    with served.connect() as connection, Path("/dev/null").open() as file:
        assert ask(connection, "x") == "'' is no job's number"
        before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
        for _ in range(5):
            socket.send_fds(connection, [b"devices x"], [file.fileno()] * 3)
            assert connection.recv(4096) == b"this is no step with a cgroup"
            connection.send(b"y" * (LONGEST + 5))
            assert connection.recv(4096) == b"'' is no job's number"
        assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


@needs_root
def test_an_answer_is_as_long_as_who_asks_has_room_for(served: Served) -> None:
    with served.connect() as connection:
        connection.send(b"cell " + b"x" * 20000)
        assert len(connection.recv(99999)) == warden.LONGEST_ANSWER


KEEP = """
import ctypes, os, resource, signal, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 4096))
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from images.worker import warden
from tests.unit.images.cells import FakeCellMounts, cells_in
directory, mounts = Path(sys.argv[2]), FakeCellMounts()
def make():
    for cell in (directory / "cells").glob("*"):  # the kernel would know
        mounts.mounted |= dict.fromkeys([str(cell), f"{cell}/tmp", f"{cell}/dev/shm"], "4096 bytes")
    return cells_in(directory, mounts)
def log(text):
    os.write(1, f"{text}\\n".encode())
fork, full = os.fork, directory / "no-processes"
def limited():
    if full.exists():
        raise BlockingIOError(11, "Resource temporarily unavailable")
    return fork()
os.fork = limited
os.setpgid(0, 0)
warden.start(make, log, directory / "warden/socket", containers=sys.argv[3] == "containers")
ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER, as the init of a container
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
print("started", flush=True)
sys.stdin.read()
"""


class Started:
    """A warden that was started as slurmd's start does it."""

    def __init__(self, directory: Path, pool: str = "") -> None:
        self.directory = directory
        self.process = subprocess.Popen(
            [sys.executable, "-c", KEEP, str(ROOT), str(directory), pool],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.read() == "started\n"
        self.wait(lambda: len(self.pids()) == 2)

    def read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.settimeout(10)
        connection.connect(str(self.directory / "warden/socket"))
        return connection

    def pids(self) -> dict[int, int]:
        """The warden's processes, each with its parent."""
        found = {}
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = path.read_text().rpartition(")")[2].split()
                title = (path.parent / "cmdline").read_bytes()
            except OSError:
                continue
            if str(self.directory).encode() in title and fields[0] != "Z" and int(path.parent.name) != self.process.pid:
                found[int(path.parent.name)] = int(fields[1])
        return found

    def inner(self) -> int:
        """The one that answers, the child of the other."""
        found = self.pids()
        return next(pid for pid, parent in found.items() if parent in found)

    def outer(self) -> int:
        found = self.pids()
        return next(pid for pid, parent in found.items() if parent not in found)

    @staticmethod
    def wait(condition: Callable[[], bool]) -> None:
        for _ in range(500):
            if condition():
                return
            threading.Event().wait(0.02)
        raise AssertionError("never")


@pytest.fixture
def started(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Started]:
    found = Started(tmp_path, getattr(request, "param", ""))
    yield found
    while pids := found.pids():
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    found.process.kill()
    found.process.wait()


@needs_root
def test_another_takes_the_place_of_one_that_ended(started: Started) -> None:
    with started.connect() as connection:
        assert ask(connection, f"cell 17 {UID} {GID} 0").endswith("/cells/17")
        first = started.inner()

        os.kill(first, signal.SIGKILL)

        assert connection.recv(10) == b"", "who waits for an answer is told at once"
    with started.connect() as connection:
        assert ask(connection, f"cell 18 {UID} {GID} 0").endswith("/cells/18")
        assert ask(connection, "end 18") == "this is a step of job 18"
    assert started.read() == "the warden ended (-9); starting another\n"
    assert started.inner() != first
    with started.connect() as connection:
        assert ask(connection, "end 17") == "ok"
    assert [path.name for path in (started.directory / "cells").iterdir()] == ["18"]


@needs_root
def test_without_another_process_there_is_no_warden_until_there_is_room(started: Started) -> None:
    """Any user can have so many processes that the pod may have no more."""
    full = started.directory / "no-processes"
    full.touch()
    os.kill(started.inner(), signal.SIGKILL)
    started.wait(lambda: len(started.pids()) == 1)
    assert started.read() == "the warden ended (-9); starting another\n"
    full.unlink()
    started.wait(lambda: len(started.pids()) == 2)
    with started.connect() as other:
        assert ask(other, f"cell 18 {UID} {GID} 0").endswith("/cells/18")


@needs_root
def test_its_socket_is_for_root_alone_and_it_keeps_only_what_it_needs(started: Started) -> None:
    assert (started.directory / "warden").stat().st_mode & 0o777 == 0o700
    assert_kept(started, 1 << 21 | 1 << 0 | 1 << 1 | 1 << 3)  # SYS_ADMIN, CHOWN, DAC_OVERRIDE, FOWNER


@needs_root
@pytest.mark.parametrize("started", ["containers"], indirect=True)
def test_namespaces_take_more_and_are_answered_by_who_makes_them(started: Started) -> None:
    """A cell of this test is a directory that users may not enter: that is what is answered."""
    # KILL, SETGID, SETUID and SYS_CHROOT besides.
    assert_kept(started, sum(1 << number for number in (0, 1, 3, 5, 6, 7, 18, 21)))
    before = len(os.listdir(f"/proc/{started.inner()}/fd"))  # noqa: PTH208
    with started.connect() as step, started.connect() as other:
        assert ask(step, f"cell 17 {UID} {GID} 0").endswith("/cells/17")
        for _ in range(3):
            assert ask(other, "namespaces 17 10001 10001 10001") == "Permission denied"
            assert started.read() == "no namespaces for user 10001: Permission denied\n"
    started.wait(lambda: len(os.listdir(f"/proc/{started.inner()}/fd")) == before)  # noqa: PTH208
    assert len(started.pids()) == 2


def assert_kept(started: Started, kept: int) -> None:
    for pid in started.pids():
        lines = dict(line.split(":\t") for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        have = {name: int(lines[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")}
        assert have["CapPrm"] == have["CapEff"] == have["CapBnd"] == kept
        assert not have["CapAmb"]
        assert lines["Name"] == "warden"
        assert resource.prlimit(pid, resource.RLIMIT_NOFILE) == (4096, 4096), "one for each step"
        assert os.getsid(pid) == started.outer(), "no signal for the daemon's group ends it"
