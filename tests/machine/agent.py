"""Runs in the guest machine and does what the test on the other side of a serial port asks for: commands.

A message is two lengths, a header in JSON and bytes. It runs with the Python of an image, in whose root file system it
is; what it starts is in the machine's own, through descriptor 9. When the test's process ends, so does the machine.
"""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

MACHINE_ROOT = 9
"""A descriptor of the machine's own root directory."""

_PORT = "vport*p1"
_LENGTHS = struct.Struct(">II")
_AFTER_KILL_S = 5


class Agent:
    """One serial port, and a thread for each command."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._writing = threading.Lock()

    def serve(self) -> None:
        """Answer until the other side is gone."""
        self._send({"id": 0}, b"")
        while True:
            sizes = self._read(_LENGTHS.size)
            header_size, body_size = _LENGTHS.unpack(sizes)
            header, body = json.loads(self._read(header_size)), self._read(body_size)
            threading.Thread(target=self._answer, args=(header, body), daemon=True).start()

    def _read(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            got = os.read(self._port, size - len(parts))
            if not got:
                raise EOFError
            parts += got
        return bytes(parts)

    def _send(self, header: dict[str, Any], body: bytes) -> None:
        text = json.dumps(header).encode()
        data = memoryview(_LENGTHS.pack(len(text), len(body)) + text + body)
        with self._writing:
            while data:
                data = data[os.write(self._port, data) :]

    def _answer(self, asked: dict[str, Any], given: bytes) -> None:
        try:
            answer, out, err = run(asked, given)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            answer, out, err = {"exit": 127}, b"", f"{error}\n".encode()
        self._send({"id": asked["id"], "out": len(out), **answer}, out + err)


def run(asked: dict[str, Any], given: bytes) -> tuple[dict[str, Any], bytes, bytes]:
    """Run one command to its end or to the end of its time: what became of it, its output, its errors."""
    process = subprocess.Popen(
        asked["argv"],
        env=asked["env"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=_leave,  # noqa: PLW1509 - it makes two calls of the kernel
    )
    try:
        out, err = process.communicate(given, timeout=asked["timeout"])
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        try:
            out, err = process.communicate(timeout=_AFTER_KILL_S)
        except subprocess.TimeoutExpired as error:  # something in another session still holds its output
            out, err = error.output or b"", error.stderr or b""
        return {"exit": None}, out, err
    return {"exit": process.returncode}, out, err


def _leave() -> None:
    """Leave the image's root for the machine's, as the child that will be the command."""
    os.fchdir(MACHINE_ROOT)
    os.chroot(".")
    Path("/proc/self/oom_score_adj").write_text("0")


def main() -> None:
    """Serve; then turn the machine off."""
    Path("/proc/self/oom_score_adj").write_text("-1000")
    while not (ports := [*Path("/dev").glob(_PORT)]):  # it comes some milliseconds after its driver
        time.sleep(0.01)
    try:
        Agent(os.open(ports[0], os.O_RDWR | os.O_CLOEXEC)).serve()
    except (OSError, EOFError) as error:
        sys.stderr.write(f"agent: {error!r}\n")
    Path("/proc/sysrq-trigger").write_text("o")


if __name__ == "__main__":
    main()
