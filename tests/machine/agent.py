"""Runs in the guest machine and does what the test on the other side of a serial port asks for: one command at a time.

Question and answer are a line of JSON each. It runs with the Python of an image, in whose root file system it is; what
it starts is in the machine's own, through descriptor 9. When the test's process ends, so does the machine.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

MACHINE_ROOT = 9
"""A descriptor of the machine's own root directory."""

_PORT = "vport*p1"
_AFTER_KILL_S = 5


def run(asked: dict[str, Any]) -> dict[str, Any]:
    """Run one command to its end or to the end of its time (`exit` is None then)."""
    try:
        process = subprocess.Popen(
            asked["argv"],
            env=asked["env"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=_leave,  # noqa: PLW1509 - it makes two calls of the kernel
        )
    except (OSError, subprocess.SubprocessError) as error:
        return {"exit": 127, "out": "", "err": f"{error}\n"}
    try:
        out, err = process.communicate(asked["stdin"].encode("latin-1"), timeout=asked["timeout"])
        status = process.returncode
    except subprocess.TimeoutExpired:
        status = None
        os.killpg(process.pid, signal.SIGKILL)
        try:
            out, err = process.communicate(timeout=_AFTER_KILL_S)
        except subprocess.TimeoutExpired as error:  # something in another session still holds its output
            out, err = error.output or b"", error.stderr or b""
    return {"exit": status, "out": out.decode(errors="replace"), "err": err.decode(errors="replace")}


def _leave() -> None:
    """Leave the image's root for the machine's, as the child that will be the command."""
    os.fchdir(MACHINE_ROOT)
    os.chroot(".")
    Path("/proc/self/oom_score_adj").write_text("0")


def _send(port: int, answer: dict[str, Any]) -> None:
    data = memoryview(json.dumps(answer).encode() + b"\n")
    while data:
        data = data[os.write(port, data) :]


def main() -> None:
    """Serve until the other side is gone; then turn the machine off."""
    Path("/proc/self/oom_score_adj").write_text("-1000")
    while not (ports := [*Path("/dev").glob(_PORT)]):  # it comes some milliseconds after its driver
        time.sleep(0.01)
    port = os.open(ports[0], os.O_RDWR | os.O_CLOEXEC)
    try:
        _send(port, {"is": "up"})
        with open(port, "rb", closefd=False) as questions:
            for line in questions:
                _send(port, run(json.loads(line)))
    except OSError as error:
        sys.stderr.write(f"agent: {error!r}\n")
    Path("/proc/sysrq-trigger").write_text("o")


if __name__ == "__main__":
    main()
