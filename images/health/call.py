"""What slurmd starts: `health-periodic`, `health-prolog`, `health-epilog`. It has the resident process do the work.

Python needs 0.1 s of CPU time to read these programs, which a node would spend twice a minute and twice for each job.
The resident process (`images/health/resident.py`) has read them, and only forks. Where it does not answer, the program
does its work here, as it would without it. So this file imports nothing that it does not always need.
"""

from __future__ import annotations

import os
import sys
from _socket import AF_UNIX, SHUT_WR, SOCK_STREAM, socket

SOCKET = "/run/slurmstack/health/socket"
PATIENCE_SECONDS = 55.0
"""The programs limit themselves to less; slurmd ends `HealthCheckProgram` after 60 s."""


def ask(program: str, environment: dict[bytes, bytes], path: str) -> int | None:
    """The program's exit code from the resident process; None if that does not answer, and nothing was done."""
    request = program.encode() + b"\0" + b"".join(name + b"=" + value + b"\0" for name, value in environment.items())
    connection = socket(AF_UNIX, SOCK_STREAM)
    try:
        connection.settimeout(PATIENCE_SECONDS)
        connection.connect(path)
        connection.sendall(request)
        connection.shutdown(SHUT_WR)
        answer = connection.recv(1)
    except TimeoutError:
        return 0  # whatever hangs there must not keep jobs from starting
    except OSError:
        return None
    finally:
        connection.close()
    return answer[0] if answer else None


def main() -> int:
    """Entry point; the program's name says what to do."""
    program = sys.argv[0].rpartition("/")[2].removeprefix("health-")
    code = ask(program, dict(os.environb), SOCKET)
    if code is not None:
        return code
    from images.health import resident  # noqa: PLC0415  (what this file is there to avoid)

    if program == "periodic":
        resident.start(SOCKET)
    return resident.run(program)


if __name__ == "__main__":
    sys.exit(main())
