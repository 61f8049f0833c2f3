"""Where slurmctld's programs ask: to look at once, and for the moment when a job's nodes are there.

Nobody needs to prove who he is: a look changes nothing that the next one would not, and whether nodes are up everybody
sees in sinfo.
"""

from __future__ import annotations

import re
import select
import socket
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final
from urllib.parse import parse_qs, urlsplit

from images.common.hostlist import expand
from images.elastic.rounds import Ready

PORT: Final = 8818
LONGEST_LIST: Final = 32768
MOST_NODES: Final = 65536
"""Characters of a host list, and nodes in its ranges."""
LONGEST_SECONDS: Final = 2 * 3600.0
"""No pool may give its nodes more time (config/sections/workers.py)."""
MOST_WAITING: Final = 500
"""Jobs that are told at once when their nodes are there. A job beyond them starts when Slurm itself looks, up to half a
minute later: an array of thousands on a few nodes must not take thousands of threads."""


class Server(ThreadingHTTPServer):
    """One thread for each job that waits for its nodes."""

    daemon_threads = True
    request_queue_size = 1024

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: a client that went away is no matter of the log."""


def is_short(hosts: str) -> bool:
    """Whether a host list has not more nodes than any cluster can have: who asks need not be slurmctld."""
    ranges = re.findall(r"(\d{1,9})-(\d{1,9})", hosts)
    return len(hosts) <= LONGEST_LIST and sum(abs(int(last) - int(first)) for first, last in ranges) <= MOST_NODES


def _is_there(connection: socket.socket) -> bool:
    """Whether the client still waits: it has sent all that it had to say."""
    # A socket with a timeout waits for it in `recv`, whatever the flags say; and poll takes any number of descriptors.
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    try:
        return not poll.poll(0) or bool(connection.recv(1, socket.MSG_PEEK))
    except OSError:
        return False


def start(ready: Ready, wake: Callable[[], None], port: int = PORT) -> Server:
    """Answer in the background. The caller may `shutdown()` it."""
    waiting = threading.Semaphore(MOST_WAITING)

    class Handler(BaseHTTPRequestHandler):
        timeout = 10

        def do_GET(self) -> None:
            """`/ready?nodes=LIST`: answered when these nodes are up, or one of them will not be."""
            url = urlsplit(self.path)
            if url.path == "/healthz":
                self._answer(HTTPStatus.OK, "fine\n")
            elif url.path == "/ready" and (hosts := parse_qs(url.query).get("nodes")):
                wake()
                self._wait(hosts[0])
            else:
                self._answer(HTTPStatus.NOT_FOUND, "")

        def _wait(self, hosts: str) -> None:
            if not waiting.acquire(blocking=False):
                self._answer(HTTPStatus.SERVICE_UNAVAILABLE, "too many wait\n")
                return
            try:
                names = frozenset(expand(hosts)) if is_short(hosts) else frozenset()
                there = ready.wait(names, LONGEST_SECONDS, lambda: _is_there(self.connection))
            finally:
                waiting.release()
            self._answer(HTTPStatus.OK if there else HTTPStatus.GONE, "ready\n" if there else "not there\n")

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
