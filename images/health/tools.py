"""How checks start other programs: like `images.common.command.run`, and it always comes back.

A program that waits for a broken device or file system does not even end when it is killed, and whoever waits for its
end waits for good. So a program that has not ended half a second after it was killed is left to itself, and not started
again while it lives: `runner.py` keeps the list.
"""

from __future__ import annotations

import os
import selectors
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import IO, Final

from images.common.command import NO_PROGRAM, TIMED_OUT, Result
from images.health.proc import Process

LIMIT_BYTES: Final = 4 << 20
"""More output than this is not read: `nvidia-smi -q` of 16 GPUs says 0.3 MB."""

CANNOT_RUN: Final = 126
"""The shell's code for a program that is there and cannot be started."""

_DYING_SECONDS: Final = 0.5
_COMM: Final = 15
"""Characters that the kernel keeps of a program's name."""


class Tools:
    """Runs a command to its end, or to the end of its time."""

    def __init__(self) -> None:
        self.left: list[int] = []
        """Processes that were killed and did not end."""
        self._hanging: set[str] = set()

    def hang(self, found: Process | None) -> None:
        """Start this program no more: one that does not end hangs here already, and each start would add another."""
        if found is not None:
            self._hanging.add(found.comm)

    def __call__(self, argv: Sequence[str], *, timeout: float = 10.0, env: Mapping[str, str] | None = None) -> Result:
        """See `images.common.command.Runner`."""
        program = os.path.basename(argv[0])  # noqa: PTH119
        if program[:_COMM] in self._hanging:
            return Result(code=CANNOT_RUN, stderr=f"an earlier {program} hangs in the kernel")
        try:
            process = subprocess.Popen(
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=None if env is None else dict(env),
            )
        except FileNotFoundError:
            return Result(code=NO_PROGRAM, stderr=f"{argv[0]}: no such program")
        except OSError as error:
            return Result(code=CANNOT_RUN, stderr=f"{argv[0]}: {error.strerror}")
        deadline = time.monotonic() + timeout
        streams = [stream for stream in (process.stdout, process.stderr) if stream is not None]
        texts = _read(streams, deadline)
        for stream in streams:
            stream.close()
        code = None if texts is None else _wait(process, deadline)
        if texts is None or code is None:
            process.kill()
            if _wait(process, time.monotonic() + _DYING_SECONDS) is None:
                self.left.append(process.pid)
                self._hanging.add(program[:_COMM])
            return Result(code=TIMED_OUT, stderr=f"{argv[0]}: no answer within {timeout:g} s")
        return Result(code=code, stdout=texts[0], stderr=texts[1])


def _read(streams: Sequence[IO[bytes]], deadline: float) -> list[str] | None:
    """All that the program says; None if it has not ended by then, or never stops."""
    said = [bytearray() for _ in streams]
    with selectors.DefaultSelector() as selector:
        for number, stream in enumerate(streams):
            selector.register(stream, selectors.EVENT_READ, number)
        while selector.get_map():
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                return None
            for key, _ in ready:
                data = os.read(key.fd, 65536)
                said[key.data] += data
                if not data:
                    selector.unregister(key.fileobj)
                elif len(said[key.data]) > LIMIT_BYTES:
                    return None
    return [bytes(text).decode(errors="replace") for text in said]


def _wait(process: subprocess.Popen[bytes], deadline: float) -> int | None:
    try:
        return process.wait(timeout=max(0.01, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return None
