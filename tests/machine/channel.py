"""The test's side of the serial port to the agent in a guest machine (agent.py)."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

_LENGTHS = struct.Struct(">II")
_GRACE_S = 30
"""What the agent has beyond a command's own time to answer; a machine that does not is lost."""


class MachineLostError(AssertionError):
    """The guest machine has ended, or does not answer."""


@dataclass(frozen=True)
class Answer:
    """What became of a command. `exit`: None where its time was over."""

    exit: int | None
    out: bytes
    err: bytes


@dataclass
class Channel:
    """Requests by number over one socket; any thread may use it."""

    connection: socket.socket
    _waiting: dict[int, Future[Answer]] = field(default_factory=dict)
    _number: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _is_up: Future[Answer] = field(default_factory=Future)
    _lost: bool = False

    def __post_init__(self) -> None:
        self._waiting[0] = self._is_up
        threading.Thread(target=self._receive, daemon=True, name="guest machine").start()

    def wait_until_up(self, timeout_s: float) -> None:
        """Wait for the agent's first word. Raises MachineLostError."""
        self._result(self._is_up, timeout_s, "to start")

    def run(self, argv: Sequence[str], env: Mapping[str, str], given: bytes, timeout_s: float) -> Answer:
        """Run a command in the machine. Raises MachineLostError."""
        future: Future[Answer] = Future()
        header = {"argv": list(argv), "env": dict(env), "timeout": timeout_s}
        with self._lock:
            if self._lost:
                raise MachineLostError("the guest machine has ended")
            self._number += 1
            self._waiting[self._number] = future
            text = json.dumps({"id": self._number, **header}).encode()
            try:
                self.connection.sendall(_LENGTHS.pack(len(text), len(given)) + text + given)
            except OSError as error:
                raise MachineLostError(f"the guest machine has ended: {error}") from None
        return self._result(future, timeout_s + _GRACE_S, f"to answer: {' '.join(argv)[:200]}")

    def close(self) -> None:
        """Let the agent turn the machine off, if it still can."""
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
        self.connection.close()

    @staticmethod
    def _result(future: Future[Answer], timeout_s: float, what: str) -> Answer:
        try:
            return future.result(timeout_s)
        except TimeoutError:
            raise MachineLostError(f"the guest machine took more than {timeout_s:.0f} s {what}") from None

    def _receive(self) -> None:
        try:
            with self.connection.makefile("rb") as stream:
                while sizes := stream.read(_LENGTHS.size):
                    header_size, body_size = _LENGTHS.unpack(sizes)
                    header, body = json.loads(stream.read(header_size)), stream.read(body_size)
                    size = header.get("out", 0)
                    self._waiting.pop(header["id"]).set_result(Answer(header.get("exit"), body[:size], body[size:]))
        except (OSError, ValueError, struct.error):
            pass
        with self._lock:
            self._lost = True
        for future in [*self._waiting.values()]:
            future.set_exception(MachineLostError("the guest machine has ended"))
