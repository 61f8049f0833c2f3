"""Serves the figures of a node's jobs, and those of its health, to Prometheus.

Users reach this port: jobs are in the pod's own network, and Kubernetes lets pods reach each other. Nothing of the
request is used but that it asks for /metrics; who asks from within the pod is refused; and who asks often, or has
thousands of processes, gets what was read before, so that reading never takes more than a twentieth of one CPU.
"""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from images.common.boundary import keep_only
from images.worker.job_metrics.cgroups import JobCgroups
from images.worker.job_metrics.figures import text
from images.worker.job_metrics.processes import JobProcesses

PORT: Final = 9306
"""That of the cgroup_exporter: jobstats cuts it off the instance, whatever it is."""

HEALTH: Final = Path("/run/slurmstack/health/metrics.prom")
_HEALTH_BYTES: Final = 1 << 20

NOBODY: Final = 65534
_MEMORY: Final = 512 << 20
"""Of addresses; 30 MiB are used. A process that needs more ends, and a new one starts."""

_SECONDS: Final = 2.0
"""For a request and its answer together: others wait meanwhile."""
_REQUEST_BYTES: Final = 8192
_SHARE: Final = 20
_PAUSE_SECONDS: Final = 5.0


def is_of_this_pod(address: str, family: int) -> bool:
    """Whether an address is one of our own: only those can be bound."""
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


class Figures:
    """What is answered. It is read anew after a second at the earliest, and after twenty times what reading takes."""

    def __init__(
        self, node: str, memory: int, health: Path = HEALTH, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._cgroups = JobCgroups(node)
        self._processes = JobProcesses(memory)
        self._health = health
        self._now = now
        self._again = float("-inf")
        self._text = b""

    def get(self) -> bytes:
        """The text. Raises OSError."""
        started = self._now()
        if started >= self._again:
            jobs = self._cgroups.read() if self._cgroups.are_there() else self._processes.read()
            self._text = text(jobs).encode() + self._health_text()
            ended = self._now()
            self._again = ended + max(1.0, _SHARE * (ended - started))
        return self._text

    def _health_text(self) -> bytes:
        with contextlib.suppress(OSError), self._health.open("rb") as file:
            return file.read(_HEALTH_BYTES)
        return b""


def answer(connection: socket.socket, get: Callable[[], bytes], seconds: float = _SECONDS) -> None:
    """Answer one request. Raises OSError, which has nothing to say but that the other end is not as it should be."""
    until = time.monotonic() + seconds

    def bounded() -> None:
        connection.settimeout(max(until - time.monotonic(), 0.001))

    request = b""
    while b"\r\n\r\n" not in request:
        bounded()
        more = connection.recv(_REQUEST_BYTES)
        if not more or time.monotonic() >= until or len(request) + len(more) > _REQUEST_BYTES:
            return
        request += more
    if request.startswith((b"GET /metrics HTTP/1.", b"GET /metrics?")):
        status, body = b"200 OK", get()
    else:
        status, body = b"404 Not Found", b"the figures are at /metrics\n"
    kind = b"Content-Type: text/plain; version=0.0.4; charset=utf-8"
    head = b"HTTP/1.1 %s\r\n%s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % (status, kind, len(body))
    bounded()
    connection.sendall(head + body)


def listen(port: int = PORT) -> socket.socket:
    """Taken before there are jobs, so that no job can have the port. Raises OSError."""
    if socket.has_dualstack_ipv6():
        with contextlib.suppress(OSError):
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", port))


def serve(listening: socket.socket, get: Callable[[], bytes]) -> None:
    """Serve for ever."""
    while True:
        connection, peer = listening.accept()
        with connection, contextlib.suppress(OSError):
            if not is_of_this_pod(peer[0], listening.family):
                answer(connection, get)


def start(node: str, memory_mib: int, log: Callable[[str], None], port: int = PORT) -> None:
    """Serve beside the daemon that this process becomes, as nobody and without capabilities. Raises OSError."""
    listening = listen(port)
    if os.fork() == 0:
        try:
            os.setsid()
            _give_up_rights()
            _keep_serving(listening, node, memory_mib << 20, log)
        except BaseException as error:  # noqa: BLE001  (this process must not go on as the daemon's start)
            log(f"no figures of jobs: {type(error).__name__}: {error}")
        finally:
            os._exit(1)
    listening.close()


def _give_up_rights() -> None:
    os.chdir("/")
    os.nice(10)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    keep_only("SETUID")
    os.setresuid(NOBODY, NOBODY, NOBODY)  # which ends the last one


def _keep_serving(listening: socket.socket, node: str, memory: int, log: Callable[[str], None]) -> None:
    """One process after the other, should one end."""
    while True:
        child = os.fork()
        if child == 0:
            try:
                serve(listening, Figures(node, memory).get)
            except BaseException as error:  # noqa: BLE001
                log(f"figures of jobs: {type(error).__name__}: {error}")
            finally:
                os._exit(1)
        os.waitpid(child, 0)
        time.sleep(_PAUSE_SECONDS)
