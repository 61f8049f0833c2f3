"""The resident process of a node: it has all programs of this folder in memory, and forks one when slurmd wants it.

A node then needs about 0.01 s of CPU time for a prolog instead of 0.12 s. `health-periodic` starts it where it is not
there; nothing depends on it. Every run is a process of its own, so that no run can harm another, and reads the site's
settings anew. What asks it is images/health/native/call.c.
"""

from __future__ import annotations

import fcntl
import gc
import os
import signal
import socket
import struct
from pathlib import Path
from typing import IO, Final, NoReturn

from images.health import epilog, periodic, prolog
from images.health.local import find_local, pod_environment
from images.health.registry import find_checks
from images.health.state import open_lock

PROGRAMS: Final = {"periodic": periodic.main, "prolog": prolog.main, "epilog": epilog.main}

LONGEST_REQUEST: Final = 1 << 20
"""Bytes. A job's environment is not in it, only what slurmd tells its prolog."""

REQUEST_SECONDS: Final = 5.0


def run(program: str) -> int:
    """Run a program in this process. Raises KeyError."""
    return PROGRAMS[program]()


def start(path: str) -> None:
    """Start the resident process, out of the process group that slurmd ends with its program."""
    if os.fork() == 0:
        try:
            os.setsid()
            if os.fork() == 0:
                nothing = os.open(os.devnull, os.O_RDWR)
                for descriptor in (0, 1, 2):
                    os.dup2(nothing, descriptor)
                os.chdir("/")
                Resident(Path(path)).serve()
        finally:
            os._exit(0)
    os.wait()


class Resident:
    """Waits for requests on a socket that only root can reach."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def serve(self) -> None:
        """Serve for ever; returns at once if another process does, or if it cannot."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        lock = self._lock()
        if lock is None:
            return
        with lock, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
            self._path.unlink(missing_ok=True)
            before = os.umask(0o177)
            listening.bind(str(self._path))
            os.umask(before)
            self._say_whether_plain()
            gc.freeze()  # what a collection would write into the pages that all forks share
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)
            listening.listen(128)
            while True:
                self._accept(listening)

    def _say_whether_plain(self) -> None:
        """Tell call.c whether this node has no checks around jobs: it then does by itself what most jobs need."""
        node = find_local(pod_environment()).node
        found = find_checks(node=node)
        plain = self._path.with_name("plain")
        if found.broken or found.of("prolog", node) or found.of("epilog", node):
            plain.unlink(missing_ok=True)
        else:
            plain.touch(mode=0o600)

    def _lock(self) -> IO[str] | None:
        lock = open_lock(self._path.with_suffix(".lock"))
        try:
            # Of this process alone: one of flock() would be held by all forks, too.
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            lock.close()
            return None
        return lock

    @staticmethod
    def _accept(listening: socket.socket) -> None:
        connection, _ = listening.accept()
        with connection:
            try:
                child = os.fork()
            except OSError:  # no more processes: who asks does it alone
                return
            if child == 0:
                listening.close()
                _answer(connection)


def _answer(connection: socket.socket) -> NoReturn:
    """The forked child: runs what is asked for, and says how it ended."""
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        if _peer(connection) not in {0, os.geteuid()}:
            os._exit(1)
        connection.settimeout(REQUEST_SECONDS)
        program, environment = read_request(connection)
        connection.settimeout(None)
        os.environ.clear()
        os.environ.update(environment)
        code = 0
        try:
            code = run(program)
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 0
        connection.sendall(bytes([code & 0xFF]))
    finally:
        os._exit(0)


def _peer(connection: socket.socket) -> int:
    """User of the process that asks."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, uid, _ = struct.unpack("3i", credentials)
    return int(uid)


def read_request(connection: socket.socket) -> tuple[str, dict[str, str]]:
    """The program and its environment. Raises OSError, ValueError."""
    data = bytearray()
    while part := connection.recv(65536):
        data += part
        if len(data) > LONGEST_REQUEST:
            raise ValueError("the request is too long")
    program, *pairs = os.fsdecode(bytes(data)).split("\0")
    return program, dict(pair.split("=", 1) for pair in pairs if "=" in pair)
