"""The warden at its socket, with real processes: whom it answers, and that another takes its place."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from pathlib import Path

import pytest

from images.worker.warden import Warden, serve
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
    assert list((served.path.parent / "cells").iterdir()) == []
