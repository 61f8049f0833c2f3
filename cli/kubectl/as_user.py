"""A command of a user in the jail of a login node, with no more rights than a session there has.

What `kubectl exec` starts has all capabilities of the container, and what it runs in the jail was written by users: a
set-uid program there would have them, too. So they are given up between the way into the jail and its first program.
"""

from __future__ import annotations

from typing import Final

from slurm.names import JAIL_DIR
from slurm.rights import IN_JAIL

_NUMBERS: Final = {
    "CHOWN": 0, "DAC_OVERRIDE": 1, "FOWNER": 3, "FSETID": 4, "KILL": 5, "SETGID": 6, "SETUID": 7, "AUDIT_WRITE": 29,
    "SETFCAP": 31,
}  # fmt: skip
"""Of Linux (capability.h)."""

_ENTER: Final = """\
import ctypes, os, pwd, sys
root, kept, user, *argv = sys.argv[1:]
if ":" in user:
    uid, gid = map(int, user.split(":"))
    groups = [gid]
else:
    uid, gid = pwd.getpwnam(user)[2:4]
    groups = os.getgrouplist(user, gid)
os.chroot(root)
os.chdir("/")
prctl = ctypes.CDLL(None, use_errno=True).prctl
for capability in set(range(64)) - set(map(int, kept.split(","))):
    if prctl(24, capability, 0, 0, 0) and ctypes.get_errno() != 22:
        sys.exit("the container's capabilities cannot be given up")
os.setgroups(groups)
os.setgid(gid)
os.setuid(uid)
os.execv(argv[0], argv)
"""
"""24: PR_CAPBSET_DROP; 22: EINVAL, as this kernel has no such capability."""


def in_jail(user: str, *argv: str, root: str = JAIL_DIR) -> list[str]:
    """What to run in the container of sshd, as root, for a command of a user in the jail (a name, or `10001:100`)."""
    kept = ",".join(str(_NUMBERS[name]) for name in IN_JAIL)
    return ["/usr/bin/python3", "-IS", "-c", _ENTER, root, kept, user, *argv]
