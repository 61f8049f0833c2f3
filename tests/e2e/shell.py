"""One stream to a pod for many commands: `kubectl exec` starts some ten processes for each, on two cores."""

from __future__ import annotations

import atexit
import json
import queue
import subprocess
import threading
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

Done = tuple[int, str, str]
"""Exit status, standard output and standard error."""


class _Stream:
    """A process in the container that takes commands. A thread reads what it prints, so that nobody waits for ever."""

    def __init__(self, argv: Sequence[str]) -> None:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()
        atexit.register(self._process.kill)

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def is_open(self) -> bool:
        return self._process.poll() is None

    def say(self, text: str) -> None:
        """Raises BrokenPipeError."""
        assert self._process.stdin is not None
        print(text, file=self._process.stdin, flush=True)

    def hear(self, seconds: float) -> str:
        """The next line; empty at the end. Raises queue.Empty."""
        return self._lines.get(timeout=seconds)

    def close(self) -> None:
        atexit.unregister(self._process.kill)
        self._process.kill()
        self._process.wait()


@dataclass(kw_only=True)
class Shell:
    """Runs commands of bash in a container, one after the other, and finds the container's next one when it is gone."""

    argv: Sequence[str]
    """`kubectl exec --stdin ... --`."""
    _stream: _Stream | None = field(init=False, default=None)
    _busy: threading.Lock = field(init=False, default_factory=threading.Lock)

    def run(self, command: str, seconds: float) -> Done | None:
        """What a command of bash does in at most some seconds; None where it was not begun.

        That is: where another thread's runs, or the container is not there. Raises subprocess.TimeoutExpired.
        """
        if not self._busy.acquire(blocking=False):
            return None
        try:
            return self._run(command, seconds)
        finally:
            self._busy.release()

    def _run(self, command: str, seconds: float) -> Done | None:
        stream = self._open()
        try:
            stream.say(json.dumps(command))
            taken = stream.hear(_TAKEN_S)
        except (BrokenPipeError, queue.Empty):
            taken = ""
        if not taken:
            self.close()
            return None
        try:
            answer = stream.hear(seconds)
        except queue.Empty:
            self.close()
            raise subprocess.TimeoutExpired(command, seconds) from None
        if not answer:
            self.close()
            return _KILLED, "", "the container has ended"
        status, printed, complained = json.loads(answer)
        return status, printed, complained

    def _open(self) -> _Stream:
        if self._stream is None or not self._stream.is_open():
            self.close()
            self._stream = _Stream([*self.argv, "python3", "-u", "-c", _SERVE])
        return self._stream

    def close(self) -> None:
        """End it; the next command opens another one."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None
