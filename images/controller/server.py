"""The config agent's HTTP answer to "which configuration is in force?".

GET /config   {"active": hash|null, "rejected": {"hash", "message"}|null,
                   "pending": hash|null, "slurm_version": "24.11.5"}
GET /healthz  200 as long as the agent runs
"""

from __future__ import annotations

import contextlib
import json
import threading
from dataclasses import asdict, dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

from images.common.files import write_atomically

PORT: Final = 8817
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


def start_server(board: StatusBoard, port: int = PORT) -> ThreadingHTTPServer:
    """Answer in the background. The caller may `shutdown()` it."""

    class Handler(BaseHTTPRequestHandler):
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

    server = ThreadingHTTPServer(("", port), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True, name="http").start()
    return server
