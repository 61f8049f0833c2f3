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
from typing import Final
from urllib.parse import parse_qs, urlsplit

from images.common import http_server
from images.common.slurm_records import expand
from images.elastic.rounds import Ready

PORT: Final = 8818
LONGEST_LIST: Final = 32768
"""Characters of a host list."""
LONGEST_SECONDS: Final = 2 * 3600.0
"""No pool may give its nodes more time (config/sections/workers.py)."""
MOST_WAITING: Final = 500
"""Jobs that are told at once when their nodes are there. A job beyond them starts when Slurm itself looks, up to half a
minute later: an array of thousands on a few nodes must not take thousands of threads."""

_RANGE: Final = r"\d{1,9}(?:-\d{1,9})?"
_NODES: Final = rf"[A-Za-z0-9._-]{{1,63}}(?:\[{_RANGE}(?:,{_RANGE})*\])?"
_LIST: Final = re.compile(rf"{_NODES}(?:,{_NODES})*", re.ASCII)


class Server(http_server.Server):
    """One thread for each job that waits for its nodes."""

    request_queue_size = 1024


def is_short(hosts: str, most: int) -> bool:
    """Whether a host list has no more than `most` nodes: who asks need not be slurmctld.

    And whether it is one as Slurm writes it: `expand` takes numbers as Python does, `9_999_999_999` too.
    """
    if len(hosts) > LONGEST_LIST or not _LIST.fullmatch(hosts):
        return False
    ranges = re.findall(r"(\d+)-(\d+)", hosts)
    return hosts.count(",") + 1 + sum(abs(int(last) - int(first)) for first, last in ranges) <= most


def _is_there(connection: socket.socket) -> bool:
    """Whether the client still waits: it has sent all that it had to say."""
    # A socket with a timeout waits for it in `recv`, whatever the flags say; and poll takes any number of descriptors.
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    try:
        return not poll.poll(0) or bool(connection.recv(1, socket.MSG_PEEK))
    except OSError:
        return False


def start(ready: Ready, wake: Callable[[], None], port: int = PORT) -> http_server.Server:
    """Answer in the background. The caller may `shutdown()` it."""
    room = threading.BoundedSemaphore(MOST_WAITING)

    class Handler(http_server.Handler):
        def do_GET(self) -> None:  # noqa: N802
            """`/ready?nodes=LIST`: answered when these nodes are up, or one of them will not be."""
            url = urlsplit(self.path)
            if url.path == "/healthz":
                self._answer(HTTPStatus.OK, "fine\n")
            elif url.path == "/ready" and (hosts := parse_qs(url.query).get("nodes")):
                self._wait(hosts[0])
            else:
                self._answer(HTTPStatus.NOT_FOUND, "")

        def _wait(self, hosts: str) -> None:
            if not room.acquire(blocking=False):
                self._answer(HTTPStatus.SERVICE_UNAVAILABLE, "too many wait\n")
                return
            try:
                names = frozenset(expand(hosts)) if is_short(hosts, ready.most) else frozenset()
                # Of a job on nodes that are up nothing is to be learned, and a look would take a core from its start.
                if not ready.are_up(names):
                    wake()
                there = ready.wait(names, LONGEST_SECONDS, lambda: _is_there(self.connection))
            finally:
                room.release()
            self._answer(HTTPStatus.OK if there else HTTPStatus.GONE, "ready\n" if there else "not there\n")

        def do_POST(self) -> None:  # noqa: N802
            """`/look`: something has changed."""
            wake()
            self._answer(HTTPStatus.OK, "")

        def _answer(self, status: HTTPStatus, text: str) -> None:
            self.send(http_server.Answer("text/plain", text, status))

    return http_server.serve(Server(("", port), Handler))
