"""admit LOGINS: lets a user in who has fewer sessions than that on this login node. PAM runs it before each login.

It counts connections, not terminals: scp and sftp are sessions, and several shells that share a connection are one.
"""

from __future__ import annotations

import os
import pwd
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from images.common.files import lines_in, text_of

_SSHD: Final = frozenset({"sshd", "sshd-session"})
"""Names of the process that serves a connection; the second since OpenSSH 9.8. Those that are not logged in yet are
served by `sshd-auth` (since OpenSSH 10)."""

Process = tuple[str, int, int]
"""Name, real uid and parent."""

REFUSED: Final = 1


def sessions_of(uid: int, proc: Path = Path("/proc")) -> int:
    """Connections that a user has: processes of sshd that are the user's, and whose parent is root's.

    Those whose parent is the user's own belong to a connection that is counted already (sftp).
    """
    found = _processes(proc)
    return sum(
        1
        for name, owner, parent in found.values()
        if name in _SSHD and owner == uid and (parent not in found or found[parent][1] != uid)
    )


def _processes(proc: Path) -> dict[int, Process]:
    found = {}
    for path in proc.glob("[0-9]*/status"):
        with suppress(OSError, KeyError, ValueError, IndexError):  # it has ended meanwhile
            fields = dict(line.split(":", 1) for line in lines_in(text_of(path)) if ":" in line)
            process = fields["Name"].strip(), int(fields["Uid"].split()[0]), int(fields["PPid"])
            found[int(path.parent.name)] = process
    return found


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
    if uid != 0 and sessions_of(uid) >= allowed:
        print(f"{name} has {allowed} sessions on this login node already, and more are not allowed.")
        return REFUSED
    return 0
