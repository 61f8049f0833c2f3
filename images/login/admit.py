"""admit LOGINS: lets a user in who has fewer sessions than that on this login node. PAM runs it before each login.

It counts connections, not terminals: scp and sftp are sessions, and several shells that share a connection are one.
"""

from __future__ import annotations

import os
import pwd
import sys
from pathlib import Path
from typing import Final

REFUSED: Final = 1
_SSHD: Final = frozenset({"sshd", "sshd-session"})
"""Names of the process that serves a connection; the second since OpenSSH 9.8."""


def main() -> int:
    """Entry point."""
    if len(sys.argv) != 2 or not sys.argv[1].isdigit():
        sys.stderr.write("usage: admit LOGINS\n")
        return 64
    name = os.environ.get("PAM_USER", "")
    try:
        uid = pwd.getpwnam(name).pw_uid
    except KeyError:
        return REFUSED
    allowed = int(sys.argv[1])
    if uid != 0 and sessions(uid) >= allowed:
        print(f"{name} has {allowed} sessions on this login node already, and more are not allowed.")
        return REFUSED
    return 0


def sessions(uid: int, proc: Path = Path("/proc")) -> int:
    """Connections that a user has: processes of sshd that are the user's, and whose parent is root's.

    Those whose parent is the user's own belong to a connection that is counted already (sftp).
    """
    found = {int(path.name): process for path in proc.glob("[0-9]*") if (process := _process(path)) is not None}
    return sum(
        1
        for name, owner, parent in found.values()
        if name in _SSHD and owner == uid and (parent not in found or found[parent][1] != uid)
    )


def _process(path: Path) -> tuple[str, int, int] | None:
    """Name, real uid and parent of a process, or None if it has ended meanwhile."""
    try:
        text = (path / "status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    try:
        return fields["Name"].strip(), int(fields["Uid"].split()[0]), int(fields["PPid"])
    except (KeyError, ValueError, IndexError):
        return None
