"""Serves the figures of a node's jobs, and those of its health, to Prometheus.

Users reach this port: jobs are in the pod's own network, and Kubernetes lets pods reach each other. Nothing of the
request is used but that it asks for /metrics; who asks from within the pod is refused; and who asks often, or has
thousands of processes, gets what was read before, so that reading never takes more than a twentieth of one CPU. Who
has the server wait is not listened to for a while, as there is one answer at a time.
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
"""For a request and its answer together, without the time in which the figures are read: others wait meanwhile."""
_ENOUGH: Final = 0.5
"""As a part of that time: what an address may have had lately. Who asks again and again, and each time takes a little
less than all of it, keeps others out as well as who says nothing."""
_FORGOTTEN: Final = 0.025
"""The same: what is forgotten in a second. After all of it an address is refused for 20 s. Prometheus waits 10 s for an
answer: five such addresses, one after the other, are as much."""
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


class Slow:
    """What each address has had of the server lately, of the time for one request; who has had too much is refused."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self.had: dict[str, tuple[float, float]] = {}
        """How much, and as of when: it is forgotten little by little."""

    def add(self, address: str, share: float) -> None:
        """Note that it has had so much."""
        now, had = self._now(), self._had(address) + share
        self.had = {one: told for one, told in self.had.items() if self._had(one) > 0}
        self.had[address] = (had, now)

    def _had(self, address: str) -> float:
        share, at = self.had.get(address, (0.0, 0.0))
        return max(share - (self._now() - at) * _FORGOTTEN, 0.0)

    def __contains__(self, address: str) -> bool:
        """Whether it is refused now."""
        return self._had(address) >= _ENOUGH


def answer(
    connection: socket.socket,
    get: Callable[[], bytes],
    seconds: float = _SECONDS,
    now: Callable[[], float] = time.monotonic,
) -> None:
    """Answer one request. Raises OSError, which has nothing to say but that the other end is not as it should be."""
    until = now() + seconds

    def bounded() -> None:
        connection.settimeout(max(until - now(), 0.001))

    request = b""
    while b"\r\n\r\n" not in request:
        bounded()
        more = connection.recv(_REQUEST_BYTES)
        if not more or now() >= until or len(request) + len(more) > _REQUEST_BYTES:
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


def attend(
    connection: socket.socket,
    address: str,
    get: Callable[[], bytes],
    slow: Slow,
    *,
    seconds: float = _SECONDS,
    now: Callable[[], float] = time.monotonic,
) -> None:
    """Answer one request unless its address is refused, and note what time it took."""
    if address in slow:
        return
    reading = 0.0

    def measured() -> bytes:
        nonlocal reading
        began = now()
        try:
            return get()
        finally:
            reading = now() - began

    began = now()
    with contextlib.suppress(OSError):
        answer(connection, measured, seconds, lambda: now() - reading)
    slow.add(address, min((now() - began - reading) / seconds, 1.0))


def serve(listening: socket.socket, get: Callable[[], bytes]) -> None:
    """Serve for ever."""
    slow = Slow()
    while True:
        connection, peer = listening.accept()
        with connection, contextlib.suppress(OSError):
            if not is_of_this_pod(peer[0], listening.family):
                attend(connection, peer[0], get, slow)


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
