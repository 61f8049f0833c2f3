"""health-alone PROGRAM: what `health-periodic`, `health-prolog` and `health-epilog` do where nobody does it for them.

images/health/native/call.c starts it when the resident process does not answer.
"""

from __future__ import annotations

import sys
from typing import Final

from images.health import resident

SOCKET: Final = "/run/slurmstack/health/socket"


def main() -> int:
    """Entry point."""
    program = sys.argv[1]
    if program == "periodic":
        resident.start(SOCKET)
    return resident.run(program)
