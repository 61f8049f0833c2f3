"""Where slurmctld's programs ask: to look at once, and for the moment when a job's nodes are there.

Nobody needs to prove who he is: a look changes nothing that the next one would not, and whether nodes are up everybody
sees in sinfo.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final
from urllib.parse import parse_qs, urlsplit

from images.common.hostlist import expand
from images.elastic.rounds import Ready

PORT: Final = 8818
LONGEST_SECONDS: Final = 2 * 3600.0
"""No pool may give its nodes more time (config/sections/workers.py)."""
_LONGEST_LINE: Final = 65536


class Server(ThreadingHTTPServer):
    """One thread for each job that waits for its nodes."""

    daemon_threads = True
    request_queue_size = 1024

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: a client that went away is no matter of the log."""


def start(ready: Ready, wake: Callable[[], None], port: int = PORT) -> Server:
    """Answer in the background. The caller may `shutdown()` it."""

    class Handler(BaseHTTPRequestHandler):
        timeout = 10

        def do_GET(self) -> None:
            """`/ready?nodes=LIST`: answered when these nodes are up, or one of them will not be."""
            url = urlsplit(self.path)
            if url.path == "/healthz":
                self._answer(HTTPStatus.OK, "fine\n")
            elif url.path == "/ready" and (hosts := parse_qs(url.query).get("nodes")):
                wake()
                there = ready.wait(frozenset(expand(hosts[0])), LONGEST_SECONDS)
                self._answer(HTTPStatus.OK if there else HTTPStatus.GONE, "ready\n" if there else "not there\n")
            else:
                self._answer(HTTPStatus.NOT_FOUND, "")

        def do_POST(self) -> None:
            """`/look`: something has changed."""
            wake()
            self._answer(HTTPStatus.OK, "")

        def _answer(self, status: HTTPStatus, text: str) -> None:
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Say nothing: each job would have its line."""

    server = Server(("", port), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True, name="http").start()
    return server
