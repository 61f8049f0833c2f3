"""A small HTTP server for ports that users' programs may reach: nobody keeps it from answering others."""

from __future__ import annotations

import contextlib
import io
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

PROMETHEUS: Final = "text/plain; version=0.0.4; charset=utf-8"
"""The media type of figures that Prometheus reads."""

REQUEST_SECONDS: Final = 3.0
"""For a client to say what it wants, all in all."""

MOST_CONNECTIONS: Final = 8
"""Of one address at a time. Users reach the port from their pods where no policies are enforced: 8,000 connections that
said nothing were as many threads, for ever."""


@dataclass(frozen=True)
class Answer:
    """What is sent."""

    kind: str
    """Its media type."""
    text: str
    status: HTTPStatus = HTTPStatus.OK

    @property
    def body(self) -> bytes:
        """The text as it is sent. Figures of a large cluster have some MiB, which all share that ask for the same."""
        return _encoded(self.text)


@lru_cache(maxsize=2)
def _encoded(text: str) -> bytes:
    return text.encode()


class Shares:
    """How much of something each address has, so that one leaves others their part."""

    def __init__(self, *, each: int, most: int = 0) -> None:
        """`each` is for any address; what is more, up to `most`, for those alone that share it with few others."""
        self._each, self._most = each, most
        self._lock = threading.Lock()
        self._taken: Counter[str] = Counter()

    def take(self, address: str) -> bool:
        """Whether there was one more for this address. It is given back with `give`."""
        with self._lock:
            already = self._taken[address]
            sharing = len(self._taken) + (not already)
            fits = already < max(self._each, self._most // sharing)
            if fits:
                self._taken[address] += 1
            return fits

    def give(self, address: str) -> None:
        """Give one back."""
        with self._lock:
            self._taken[address] -= 1
            self._taken += Counter()  # forgets the addresses with none


class BoundedServer(ThreadingHTTPServer):
    """Takes a bounded number of connections from each address, each for a bounded time."""

    request_queue_size = 128

    def __init__(
        self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler], *, shares: Shares | None = None
    ) -> None:
        super().__init__(address, handler)
        self._shares = shares or Shares(each=MOST_CONNECTIONS)

    def process_request(self, request: Any, client_address: Any) -> None:
        """One more, where there is room for it."""
        if not self._shares.take(client_address[0]):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # there is no thread for it
            self._shares.give(client_address[0])
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Its end makes room."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._shares.give(client_address[0])

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a client that went away is no matter of the log."""


class BoundedHandler(BaseHTTPRequestHandler):
    """Hears a client to the end of what it asks, or of its time, before anything is answered."""

    longest_head = 8192
    """Characters."""

    def setup(self) -> None:
        """Read what it asks."""
        super().setup()
        self.rfile = io.BytesIO(_head(self.connection, self.longest_head))

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing: probes come every few seconds."""


def _head(connection: socket.socket, longest: int) -> bytes:
    """What a client sends until an empty line; nothing if it takes too long. No request that we know has more."""
    end, head = time.monotonic() + REQUEST_SECONDS, b""
    with contextlib.suppress(OSError):
        while b"\r\n\r\n" not in head and len(head) < longest:
            connection.settimeout(max(end - time.monotonic(), 0.001))
            chunk = connection.recv(4096)
            if not chunk:
                break
            head += chunk
        return head
    return b""


def start_server(answer: Callable[[str], Answer], port: int) -> ThreadingHTTPServer:
    """Answer GET requests for a path in the background. The caller may `shutdown()` it."""

    class Handler(BoundedHandler):
        def do_GET(self) -> None:
            # A client behind the API server's proxy may add a query.
            found = answer(self.path.partition("?")[0])
            body = found.body
            self.send_response(found.status)
            self.send_header("Content-Type", found.kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = BoundedServer(("", port), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True, name="http").start()
    return server
