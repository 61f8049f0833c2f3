"""A small HTTP server for the ports of our programs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

PROMETHEUS: Final = "text/plain; version=0.0.4; charset=utf-8"
"""The media type of metrics that Prometheus reads."""


@dataclass(frozen=True)
class Answer:
    """What is sent."""

    kind: str
    """Its media type."""
    text: str
    status: HTTPStatus = HTTPStatus.OK


class Server(ThreadingHTTPServer):
    """A thread for each connection."""

    request_queue_size = 1024  # all jobs of an array may ask at once

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a client that went away is no matter of the log."""


class Handler(BaseHTTPRequestHandler):
    """Lets a client go that says nothing."""

    timeout = 3.0

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing: probes come every few seconds."""

    def send(self, answer: Answer) -> None:
        """All of it."""
        body = answer.text.encode()
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def start_server(answer: Callable[[str], Answer], port: int) -> ThreadingHTTPServer:
    """Answer GET requests for a path in the background. The caller may `shutdown()` it."""

    class Answering(Handler):
        def do_GET(self) -> None:
            # A client behind the API server's proxy may add a query.
            self.send(answer(self.path.partition("?")[0]))

    return serve(Server(("", port), Answering))


def serve(server: Server) -> Server:
    """Answer in the background."""
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True, name="http").start()
    return server
