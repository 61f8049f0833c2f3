"""The config agent's HTTP answer to "which configuration is in force?".

GET /config   {"active": hash|null, "rejected": {"hash", "message"}|null,
                   "pending": hash|null, "slurm_version": "24.11.5"}
GET /healthz  200 as long as the agent runs
"""

from __future__ import annotations

import contextlib
import io
import json
import socket
import threading
import time
from collections import Counter
from dataclasses import asdict, dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from images.common.files import write_atomically

PORT: Final = 8817

REQUEST_SECONDS: Final = 3.0
"""For a client to say what it wants, all in all."""

MOST_CONNECTIONS: Final = 8
"""Of one address at a time. Users reach the port from their pods where no policies are enforced: 8,000 connections that
said nothing were as many threads, for ever."""

_LONGEST_HEAD: Final = 8192
STATE_FILE: Final = Path("/run/slurmstack/configuration.json")


@dataclass(frozen=True, kw_only=True)
class Rejection:
    """A configuration that was not taken, and why."""

    hash: str
    message: str


@dataclass(frozen=True, kw_only=True)
class Status:
    """What the agent answers."""

    active: str | None = None
    rejected: Rejection | None = None
    pending: str | None = None
    slurm_version: str = ""

    def to_json(self) -> str:
        """As sent."""
        return json.dumps(asdict(self))


class StatusBoard:
    """The latest status, written by the agent and read by the HTTP server's threads; and in a file.

    The file is for people outside, who come by `kubectl exec`: where a network plugin enforces policies the API server
    has no way to the port.
    """

    def __init__(self, status: Status, file: Path | None = None) -> None:
        self._status = status
        self._file = file
        self._lock = threading.Lock()
        self._write()

    def get(self) -> Status:
        """The latest status."""
        with self._lock:
            return self._status

    def set(self, status: Status) -> None:
        """Replace it."""
        with self._lock:
            if status != self._status:
                self._status = status
                self._write()

    def _write(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):  # a full volume must not end the agent
                write_atomically(self._file, self._status.to_json())


class _Server(ThreadingHTTPServer):
    """Takes a bounded number of connections from each address, each for a bounded time."""

    request_queue_size = 128

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        self._lock = threading.Lock()
        self._open: Counter[str] = Counter()

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            fits = self._open[client_address[0]] < MOST_CONNECTIONS
            self._open[client_address[0]] += fits
        if not fits:
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # there is no thread for it
            self._forget(client_address)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._forget(client_address)

    def _forget(self, client_address: Any) -> None:
        with self._lock:
            self._open[client_address[0]] -= 1
            self._open += Counter()  # forgets the addresses with none

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a client that went away is no matter of the log."""


def _head(connection: socket.socket) -> bytes:
    """What a client sends until an empty line; nothing if it takes too long. No request that we know has more."""
    end, head = time.monotonic() + REQUEST_SECONDS, b""
    with contextlib.suppress(OSError):
        while b"\r\n\r\n" not in head and len(head) < _LONGEST_HEAD:
            connection.settimeout(max(end - time.monotonic(), 0.001))
            chunk = connection.recv(4096)
            if not chunk:
                break
            head += chunk
        return head
    return b""


def start_server(board: StatusBoard, port: int = PORT) -> ThreadingHTTPServer:
    """Answer in the background. The caller may `shutdown()` it."""

    class Handler(BaseHTTPRequestHandler):
        def setup(self) -> None:
            super().setup()
            self.rfile = io.BytesIO(_head(self.connection))

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]  # a client behind the API server's proxy may add a query
            if path == "/config":
                self._answer(HTTPStatus.OK, "application/json", board.get().to_json())
            elif path == "/healthz":
                self._answer(HTTPStatus.OK, "text/plain", "ok\n")
            else:
                self._answer(HTTPStatus.NOT_FOUND, "text/plain", "known: /config /healthz\n")

        def _answer(self, status: HTTPStatus, kind: str, text: str) -> None:
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Say nothing: probes come every few seconds."""

    server = _Server(("", port), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True, name="http").start()
    return server
