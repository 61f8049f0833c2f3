"""The config agent's HTTP answer to "which configuration is in force?".

GET /config   {"active": hash|null, "rejected": {"hash", "message"}|null,
                   "pending": hash|null, "slurm_version": "24.11.5"}
GET /store    {"free_bytes", "size_bytes": of the volume with slurmctld's state,
                   "published": seconds since 1970 when what is in force was}
GET /healthz  200 as long as the agent runs
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from dataclasses import asdict, dataclass
from http import HTTPStatus
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Final

from images.common import http_server
from images.common.files import write_atomically
from images.common.http_server import Answer

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


def start_server(board: StatusBoard, port: int = PORT, store: Path | None = None) -> ThreadingHTTPServer:
    """Answer in the background. The caller may `shutdown()` it. `store`: where the configurations are kept."""

    def answer(path: str) -> Answer:
        if path == "/config":
            return Answer("application/json", board.get().to_json())
        if path == "/store":
            return Answer("application/json", json.dumps(_state_of(store)))
        if path == "/healthz":
            return Answer("text/plain", "ok\n")
        return Answer("text/plain", "known: /config /store /healthz\n", HTTPStatus.NOT_FOUND)

    return http_server.start_server(answer, port)


def _state_of(store: Path | None) -> dict[str, float]:
    """Of the volume and of what is in force; nothing of what is not there."""
    found: dict[str, float] = {}
    with contextlib.suppress(OSError):
        if store is not None:
            volume = os.statvfs(store)
            found = {"free_bytes": volume.f_bavail * volume.f_frsize, "size_bytes": volume.f_blocks * volume.f_frsize}
            found["published"] = (store / "current").lstat().st_mtime
    return found
