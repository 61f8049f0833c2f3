"""The warden as a process: its socket, and that there is always one (what it answers: images/worker/warden.py)."""

from __future__ import annotations

import contextlib
import os
import resource
import selectors
import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NoReturn

from images.common.boundary import keep_only
from images.common.mountinfo import libc
from images.worker import namespaces
from images.worker.cells import Cells
from images.worker.warden import Warden

SOCKET: Final = Path("/run/slurmstack/warden/socket")

LONGEST: Final = 64 * 1024
"""Bytes of a message: those with programs are longer than all others."""

LONGEST_ANSWER: Final = 4095
"""As images/common/native/warden.h has room for."""

_RIGHTS: Final = ("SYS_ADMIN", "CHOWN", "DAC_OVERRIDE", "FOWNER")
"""To mount, and to make the directories of jobs."""

_PR_SET_NAME: Final = 15

PAUSE: Final = 0.1
"""Seconds between two tries to start a process."""


def serve(listening: socket.socket, warden: Warden) -> NoReturn:
    """Take connections for as long as this process lives."""
    with selectors.DefaultSelector() as selector:
        selector.register(listening, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is listening:
                    connection, _ = listening.accept()
                    if _peer(connection)[1] == 0:
                        selector.register(connection, selectors.EVENT_READ)
                    else:
                        connection.close()
                elif not _serve_one(_socket(key), warden):
                    selector.unregister(key.fileobj)
                    warden.closed(key.fd)
                    _socket(key).close()


def _socket(key: selectors.SelectorKey) -> socket.socket:
    assert isinstance(key.fileobj, socket.socket)
    return key.fileobj


def _serve_one(connection: socket.socket, warden: Warden) -> bool:
    """Answer one message. Returns whether the connection is still there."""
    with contextlib.suppress(OSError):
        data, files, _, _ = socket.recv_fds(connection, LONGEST, 1)
        try:
            if data:
                answer = warden.answer(connection.fileno(), _peer(connection)[0], data, files)
                # Who asks and never reads must not keep the others waiting: code of the jail may have the connection.
                if answer:
                    connection.send(answer.encode()[:LONGEST_ANSWER], socket.MSG_DONTWAIT)
                return True
        finally:
            for file in files:
                os.close(file)
    return False


def _peer(connection: socket.socket) -> tuple[int, int]:
    """Process and user at the other end, when it connected."""
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid, uid, _ = struct.unpack("3i", found)
    return pid, uid


def start(
    make_cells: Callable[[], Cells], log: Callable[[str], None], path: Path = SOCKET, *, containers: bool = False
) -> None:
    """Start the warden beside the daemon that this process becomes; steps may ask as soon as this returns.

    `containers`: whether users may have namespaces of their own.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.parent.chmod(0o700)
    path.unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listening.bind(str(path))
    listening.listen(1024)
    if os.fork() == 0:
        _keep_serving(listening, make_cells, log, containers=containers)
    listening.close()


def _keep_serving(
    listening: socket.socket, make_cells: Callable[[], Cells], log: Callable[[str], None], *, containers: bool
) -> NoReturn:
    """One warden after the other, should one end: who asks meanwhile waits, as the socket stays.

    Where this process has ended, the last one goes on; where both have, slurmd ends (images/common/native/watch.c).
    """
    try:
        os.setsid()
        libc().prctl(_PR_SET_NAME, b"warden")
        keep_only(*_RIGHTS, *(namespaces.RIGHTS if containers else ()))

        def make_namespaces(connection: int, cell: Path, owner: namespaces.Owner) -> None:
            namespaces.answer_later(connection, cell, owner, log)

        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # one for each step, and for each program
        while True:
            child = _fork(log)
            if child == 0:
                serve(listening, Warden(make_cells(), log, make_namespaces=make_namespaces if containers else None))
            _, status = os.waitpid(child, 0)
            log(f"the warden ended ({os.waitstatus_to_exitcode(status)}); starting another")
            time.sleep(PAUSE)
    except BaseException as error:  # noqa: BLE001  (this process must not go on as the daemon's start)
        log(f"the warden cannot work: {type(error).__name__}: {error}")
    finally:
        os._exit(1)


def _fork(log: Callable[[str], None]) -> int:
    """As os.fork, as soon as there are processes: jobs may have so many that the pod or the machine has no more."""
    told = False
    while True:
        try:
            return os.fork()
        except OSError:
            if not told:
                log("there are no more processes, and so no warden: trying again")
            told = True
            time.sleep(PAUSE)
