"""Where slurmctld's programs ask: to look at once, and for the moment when a job's nodes are there.

Nobody needs to prove who he is: a look changes nothing that the next one would not, and whether nodes are up everybody
sees in sinfo.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qs, urlsplit

from images.common import http_server
from images.common.slurm_records import expand
from images.elastic.view import Node

PORT: Final = 8818
SILENT_SECONDS: Final = 30.0
"""Without a look, for which jobs wait: slurmctld does not answer then, and nobody knows of any node."""

MOST_WAITING: Final = 500
"""Jobs that are told at once when their nodes are there. A job beyond them starts when Slurm itself looks, up to half a
minute later: an array of thousands on a few nodes must not take thousands of threads."""

_MOST_NODES: Final = 65536
_NO_POOL_S: Final = re.compile(r"[^\d,-]|\d{6}")
"""In the brackets of a host list: a pool has 5,000 nodes at most."""


@dataclass(kw_only=True)
class Ready:
    """Which nodes can run jobs, for those that wait for it."""

    _changed: threading.Condition = field(default_factory=threading.Condition)
    _nodes: Mapping[str, Node] = field(default_factory=dict)
    _looks: int = 0

    def put(self, nodes: Mapping[str, Node]) -> None:
        """What the latest look has seen."""
        with self._changed:
            self._nodes, self._looks = nodes, self._looks + 1
            self._changed.notify_all()

    def wait(self, names: Collection[str], wake: Callable[[], None]) -> bool:
        """Return when all of these nodes are up (True), or when one of them will not be. `wake`: asks for a look.

        A look that began before the question may have seen what was before the job had its nodes: the next one decides.
        """
        with self._changed:
            began = self._looks
            while True:
                nodes = [self._nodes.get(name) for name in names]
                if all(node is not None and node.is_up for node in nodes):
                    return True
                if self._looks == began:  # of nodes that are up nothing is to be learned, and a look takes a core
                    wake()
                failed = any(node is None or node.is_down or (node.is_off and not node.is_awaited) for node in nodes)
                if (self._looks > began + 1 and failed) or not self._changed.wait(SILENT_SECONDS):
                    return False


def is_short(hosts: str) -> bool:
    """Whether a host list has no more nodes than there can be: who asks for a billion wants to see the memory full."""
    inside = ",".join(re.findall(r"\[([^\]]*)", hosts))
    spans = (abs(int(last) - int(first)) for first, last in re.findall(r"(\d+)-(\d+)", inside))
    return not _NO_POOL_S.search(inside) and sum(spans) < _MOST_NODES


class Server(http_server.Server):
    """One thread for each job that waits for its nodes."""

    request_queue_size = 1024


def start(ready: Ready, wake: Callable[[], None], port: int = PORT) -> http_server.Server:
    """Answer in the background. The caller may `shutdown()` it."""
    room = threading.BoundedSemaphore(MOST_WAITING)

    class Handler(http_server.Handler):
        def do_GET(self) -> None:  # noqa: N802
            """`/ready?nodes=LIST`: answered when these nodes are up, or one of them will not be."""
            url = urlsplit(self.path)
            hosts = parse_qs(url.query).get("nodes", [""])[0]
            if url.path == "/healthz":
                self._answer(HTTPStatus.OK, "fine\n")
            elif url.path != "/ready" or not hosts or not is_short(hosts):
                self._answer(HTTPStatus.NOT_FOUND, "")
            elif not room.acquire(blocking=False):
                self._answer(HTTPStatus.SERVICE_UNAVAILABLE, "too many wait\n")
            else:
                try:
                    there = ready.wait(frozenset(expand(hosts)), wake)
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
