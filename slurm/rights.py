"""Capabilities: what the programs of each container may do beyond what any user may. All others are dropped.

A container that is not named here has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_BECOME_ANOTHER: Final = ("SETGID", "SETUID")
_OWN_FILES: Final = ("CHOWN", "DAC_OVERRIDE", "FOWNER")
"""To give files to the user that a daemon becomes, and to write them again where a container has been restarted."""

IN_JAIL: Final = (*_OWN_FILES, *_BECOME_ANOTHER, "FSETID", "KILL", "SETFCAP", "AUDIT_WRITE")
"""What root inside the jail may do, by sudo: install packages and administer files. It is the same list as in
images/common/native/capabilities.c, which narrows each step and each login to it."""

INTO_JAIL: Final = (*IN_JAIL, "SYS_ADMIN", "SYS_CHROOT", "SETPCAP")
"""sshd and slurmd. SYS_ADMIN: the pod's own /proc, /dev and sockets are bound into the jail's tree, in the pod's own
mount namespace; it is given up before the daemon itself starts. SYS_CHROOT: sessions and steps enter the jail.
SETPCAP: what users may not have is taken from them. NET_BIND_SERVICE: port 22."""

WITHOUT_SET_UP: Final = ("/usr/bin/setpriv", "--inh-caps=-all", "--bounding-set=-sys_admin")
"""Before what anybody starts in a container that leads into the jail: it would have all of the container's
capabilities, and what it reads there was written by a daemon that has not."""

WITHOUT_JAIL: Final = (*IN_JAIL, "SETPCAP")
"""slurmd in a pool without the jail."""

_NO_LINKS: Final = ("SYS_ADMIN", "SETPCAP")
"""To mount the jail so that no link in it leads anywhere; SYS_ADMIN is given up before a path in it is opened."""

CAPABILITIES: Final[Mapping[str, tuple[str, ...]]] = {
    "munged": (*_OWN_FILES, *_BECOME_ANOTHER),
    "sssd": (*_OWN_FILES, *_BECOME_ANOTHER, "KILL"),
    "sackd": ("CHOWN", "FOWNER", *_BECOME_ANOTHER),
    "sshd": (*INTO_JAIL, "NET_BIND_SERVICE"),
    "worker-sshd": (*INTO_JAIL, "NET_BIND_SERVICE"),
    "slurmd": INTO_JAIL,
    "slurmctld": (*_OWN_FILES, *_BECOME_ANOTHER, "KILL"),
    "config-agent": (*_OWN_FILES, *_BECOME_ANOTHER, "KILL"),
    "slurmdbd": (*_OWN_FILES, *_BECOME_ANOTHER),
    "own-data": ("CHOWN",),
    "mariadbd": (*_OWN_FILES, *_BECOME_ANOTHER, "KILL"),
    "populate": (*_OWN_FILES, "FSETID", "SETFCAP"),
    "users": (*_OWN_FILES, "FSETID"),
    "health-tests": _BECOME_ANOTHER,
    # To read files of others. Not DAC_READ_SEARCH, which sounds like less: with it open_by_handle_at reaches files of
    # the machine beyond the container's mounts, and these volumes are mounted read-only anyway.
    "backup-state": ("DAC_OVERRIDE",),
    "backup-jail": ("DAC_OVERRIDE", *_NO_LINKS),
    "rehearse": (*_OWN_FILES, *_BECOME_ANOTHER, "KILL"),
    "restore-state": _OWN_FILES,
    "restore-jail": (*_OWN_FILES, "FSETID", "SETFCAP", *_NO_LINKS),
}
"""By container. slurmctld and the configuration agent act on each other's files and processes."""

TEMPORARY: Final = ("config-agent", "slurmdbd", "mariadbd", "check-database", "policy", "rehearse")
"""Containers that need a /tmp; the root file systems of these are read-only."""
