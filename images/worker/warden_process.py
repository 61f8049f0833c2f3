"""The warden as a process: its socket, and that there is always one (what it answers: images/worker/warden.py)."""

from __future__ import annotations

import contextlib
import ctypes
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


def serve(listening: socket.socket, warden: Warden, keeper: int) -> tuple[int, int]:
    """Take connections for as long as this process lives.

    `keeper`: a pipe that ends with the process that starts another warden. Who serves takes its place then, and leaves
    the serving to a copy of itself. Only there this returns: the copy's number, and the end of its pipe, to be held.
    """
    # Not epoll, which would be one for this process and its copy.
    with selectors.PollSelector() as selector:
        for watched in (listening, keeper):
            selector.register(watched, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fd == keeper:
                    next_keeper, held = os.pipe()
                    child = _fork()
                    if child is None:  # it is tried again, as the pipe stays ready; others are answered meanwhile
                        os.close(next_keeper)
                        os.close(held)
                        continue
                    selector.unregister(keeper)
                    os.close(keeper)
                    keeper = next_keeper
                    if child:
                        os.close(keeper)
                        _close_all(selector, listening)
                        return child, held
                    os.close(held)
                    selector.register(keeper, selectors.EVENT_READ)
                elif key.fileobj is listening:
                    connection, _ = listening.accept()
                    if _peer(connection)[1] == 0:
                        selector.register(connection, selectors.EVENT_READ)
                    else:
                        connection.close()
                elif not _serve_one(_socket(key), warden):
                    selector.unregister(key.fileobj)
                    warden.closed(key.fd)
                    _socket(key).close()


def _fork() -> int | None:
    """As os.fork; None, after a moment, where there are no more processes.

    Any user can see to that: workers have no limit of processes for jobs but that of the pod or the machine. Where both
    processes of the warden ended for it, slurmd would end with all jobs of the node.
    """
    try:
        return os.fork()
    except OSError:
        time.sleep(PAUSE)
        return None


def _socket(key: selectors.SelectorKey) -> socket.socket:
    assert isinstance(key.fileobj, socket.socket)
    return key.fileobj


def _close_all(selector: selectors.BaseSelector, but: socket.socket) -> None:
    """Close the connections, which somebody else goes on with."""
    for key in selector.get_map().values():
        if key.fileobj is not but:
            _socket(key).close()


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

    It is two processes, and each starts the other again.
    """
    try:
        os.setsid()
        ctypes.CDLL(None).prctl(_PR_SET_NAME, b"warden")
        keep_only(*_RIGHTS, *(namespaces.RIGHTS if containers else ()))

        def make_namespaces(connection: int, cell: Path, owner: namespaces.Owner) -> None:
            namespaces.answer_later(connection, cell, owner, log)

        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # one for each step, and for each program
        while True:
            keeper, held = os.pipe()
            child = _fork()
            if child is None:
                log("there are no more processes, and so no warden: trying again")
                while (child := _fork()) is None:
                    pass
            if child == 0:
                os.close(held)
                kept = Warden(make_cells(), log, make_namespaces=make_namespaces if containers else None)
                child, held = serve(listening, kept, keeper)
                log("who would start another warden has ended; another took its place")
            else:
                os.close(keeper)
            _, status = os.waitpid(child, 0)
            os.close(held)
            log(f"the warden ended ({os.waitstatus_to_exitcode(status)}); starting another")
            time.sleep(PAUSE)
    except BaseException as error:  # noqa: BLE001  (this process must not go on as the daemon's start)
        log(f"the warden cannot work: {type(error).__name__}: {error}")
    finally:
        os._exit(1)
