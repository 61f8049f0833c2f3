"""admit LOGINS: lets a user in who has fewer sessions than that on this login node. PAM runs it before each login.

It counts connections, not terminals: scp and sftp are sessions, and several shells that share a connection are one.
"""

from __future__ import annotations

import os
import pwd
import sys
from typing import Final

from images.login.sessions import sessions_of

REFUSED: Final = 1


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
