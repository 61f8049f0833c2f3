"""A guest machine by hand.

python -m tests.machine serve SOCKET [24.11]      boots one with the images of a version; Ctrl-C or SIGTERM ends it
python -m tests.machine run SOCKET 'COMMAND'      runs a command in it, with standard input if it is no terminal
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from tests.machine.machine import Machine
from tests.machine.rootfs import program_layers, root_file_systems


def serve(path: Path, version: str) -> None:
    """Boot a machine and run what is asked for at a socket."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    machine = Machine(root_file_systems(version), layers=program_layers(version))
    with machine, socket.socket(socket.AF_UNIX) as listening:
        path.unlink(missing_ok=True)
        listening.bind(str(path))
        listening.listen()
        sys.stdout.write(f"booted in {machine.boot_seconds:.1f} s; images are in /images\n")
        sys.stdout.flush()
        while True:
            connection, _ = listening.accept()
            threading.Thread(target=_answer, args=(machine, connection), daemon=True).start()


def _answer(machine: Machine, connection: socket.socket) -> None:
    with connection, connection.makefile("rw") as stream:
        asked = json.loads(stream.readline())
        try:
            done = machine.run(asked["command"], timeout=asked["timeout"], stdin=asked["stdin"])
            answer: dict[str, Any] = {"exit": done.returncode, "out": done.stdout, "err": done.stderr}
        except (subprocess.TimeoutExpired, AssertionError) as error:
            answer = {"exit": 124, "out": "", "err": f"{error}\n"}
        stream.write(json.dumps(answer) + "\n")


def run(path: Path, command: str, timeout: float = 600) -> int:
    """Run one command in the machine of a socket; returns its exit status."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(path))
        with connection.makefile("rw") as stream:
            given = "" if sys.stdin.isatty() else sys.stdin.read()
            stream.write(json.dumps({"command": command, "timeout": timeout, "stdin": given}) + "\n")
            stream.flush()
            answer = json.loads(stream.readline())
    sys.stdout.write(answer["out"])
    sys.stderr.write(answer["err"])
    return int(answer["exit"])


def main(arguments: list[str]) -> int:
    """Read the command line."""
    match arguments:
        case ["serve", path, *version]:
            serve(Path(path), *(version or ["24.11"]))
            return 0
        case ["run", path, command]:
            return run(Path(path), command)
    sys.stderr.write(__doc__ or "")
    return 2


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
