"""The dashboard's server, which has no disk to write to."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path

from tests.stacks import ROOT

ANSWER = 8 << 20
"""Bytes: more than a socket takes, and than waitress keeps in memory unless it is told."""

SERVER = f"""
import resource, sys
from pathlib import Path
from images.dashboard.app import serve

def app(environ, start_response):
    start_response("200 OK", [("Content-Length", "{ANSWER}")])
    return [b"x" * {ANSWER}]

resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
serve(app, Path(sys.argv[1]))
"""
"""No file that it writes may have even one byte."""


def connect(path: Path) -> socket.socket:
    """As soon as somebody listens."""
    until = time.monotonic() + 20
    while True:
        client = socket.socket(socket.AF_UNIX)
        try:
            client.connect(str(path))
        except OSError:
            client.close()
            assert time.monotonic() < until, "the server does not listen"
            time.sleep(0.05)
        else:
            return client


def test_an_answer_that_its_reader_takes_slowly_needs_no_file(tmp_path: Path) -> None:
    server = subprocess.Popen([sys.executable, "-c", SERVER, str(tmp_path / "socket")], cwd=ROOT)
    try:
        with connect(tmp_path / "socket") as client, client.makefile("rb") as answer:
            client.settimeout(20)
            client.sendall(b"GET / HTTP/1.0\r\n\r\n")
            client.recv(1, socket.MSG_PEEK)
            time.sleep(0.2)  # what the socket does not take has to be kept somewhere meanwhile
            _, _, body = answer.read().partition(b"\r\n\r\n")
        assert len(body) == ANSWER
    finally:
        server.kill()
        server.wait()
