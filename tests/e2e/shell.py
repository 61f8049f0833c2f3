"""One stream to a pod for many commands: `kubectl exec` starts some ten processes for each, on two cores."""

from __future__ import annotations

import atexit
import json
import os
import select
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

_SERVE: Final = """
import json, subprocess, sys
for line in sys.stdin:
    print("taken", flush=True)
    command = ["/bin/bash", "-c", json.loads(line)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", errors="replace")
    print(json.dumps([done.returncode, done.stdout, done.stderr]), flush=True)
"""

_TAKEN_S: Final = 20.0
"""Within which a stream says that it has a command, in seconds; otherwise its machine is lost."""

_KILLED: Final = 137
"""Exit status where the container went away under a command, as kubectl has it."""


@dataclass(kw_only=True)
class Shell:
    """Runs commands of bash in a container, one after the other, and finds the container's next one when it is gone."""

    argv: Sequence[str]
    """`kubectl exec --stdin ... --`."""
    _process: subprocess.Popen[bytes] | None = field(init=False, default=None)
    _read: bytes = field(init=False, default=b"")
    _busy: threading.Lock = field(init=False, default_factory=threading.Lock)

    def run(self, command: str, seconds: float) -> tuple[int, str, str] | None:
        """Exit status and outputs of a command that takes some seconds at most; None where it was not begun.

        That is: where another thread's runs, or the container is not there. Raises subprocess.TimeoutExpired.
        """
        if not self._busy.acquire(blocking=False):
            return None
        try:
            if not self._takes(command):
                self.close()
                return None
            answer = self._line(seconds)
            if not answer:
                self.close()
                return _KILLED, "", "the container has ended"
        except TimeoutError:
            self.close()
            raise subprocess.TimeoutExpired(command, seconds) from None
        finally:
            self._busy.release()
        status, printed, complained = json.loads(answer)
        return status, printed, complained

    def _takes(self, command: str) -> bool:
        if self._process is None or self._process.poll() is not None:
            self.close()
            pipe, served = subprocess.PIPE, [*self.argv, "python3", "-u", "-c", _SERVE]
            self._process = subprocess.Popen(served, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, bufsize=0)
            atexit.register(self._process.kill)
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(command).encode() + b"\n")
            return bool(self._line(_TAKEN_S))
        except (BrokenPipeError, TimeoutError):
            return False

    def _line(self, seconds: float) -> bytes:
        """The next one; empty at the end. Raises TimeoutError."""
        assert self._process is not None
        assert self._process.stdout is not None
        until = time.monotonic() + seconds
        while b"\n" not in self._read:
            if not select.select([self._process.stdout], [], [], max(0.0, until - time.monotonic()))[0]:
                raise TimeoutError
            if not (more := os.read(self._process.stdout.fileno(), 1 << 16)):
                return b""
            self._read += more
        line, _, self._read = self._read.partition(b"\n")
        return line

    def close(self) -> None:
        """End it; the next command opens another one."""
        self._read = b""
        if self._process is not None:
            atexit.unregister(self._process.kill)
            self._process.kill()
            self._process.wait()
            self._process = None
