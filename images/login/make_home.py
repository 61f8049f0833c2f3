"""make-home: makes the home of a user of SSSD at the first login. PAM runs it, outside the jail, as root.

pam_mkhomedir would make it in the pod: sshd enters the jail only after PAM.
"""

from __future__ import annotations

import os
import pwd
import sys
from pathlib import Path

from images.common.jail_view import JailViewError, make_home

JAIL = Path("/jail")


def main() -> int:
    """Entry point."""
    if os.environ.get("PAM_TYPE") != "open_session":
        return 0
    name = os.environ.get("PAM_USER", "")
    try:
        user = pwd.getpwnam(name)
    except KeyError:
        sys.stderr.write(f"make-home: there is no user {name!r}\n")
        return 1
    if user.pw_uid == 0 or not user.pw_dir.startswith("/") or ".." in Path(user.pw_dir).parts or user.pw_dir == "/":
        return 0
    try:
        make_home(JAIL, user.pw_dir, user.pw_uid, user.pw_gid)
    except (JailViewError, OSError) as error:
        sys.stderr.write(f"make-home: {user.pw_dir} of {name}: {error}\n")
        return 1
    return 0
