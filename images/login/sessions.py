"""Who is logged in on this login node: counted by the processes of sshd."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from images.common.lines import lines_in, text_of

_SSHD: Final = frozenset({"sshd", "sshd-session"})
"""Names of the process that serves a connection; the second since OpenSSH 9.8. Those that are not logged in yet are
served by `sshd-auth` (since OpenSSH 10)."""

_SSHD_HAS: Final = 1 << 10
"""CAP_NET_BIND_SERVICE, which sshd has for its port, and nothing that a user starts can have, root in the jail neither
(images/common/native/capabilities.c): by sudo a process of root's has any name."""

Process = tuple[str, int, int, int]
"""Name, real uid, parent and permitted capabilities."""


def sessions_of(uid: int, proc: Path = Path("/proc")) -> int:
    """Connections that a user has: processes of sshd that are the user's, and whose parent is root's.

    Those whose parent is the user's own belong to a connection that is counted already (sftp).
    """
    found = _processes(proc)
    return sum(
        1
        for name, owner, parent, _ in found.values()
        if name in _SSHD and owner == uid and (parent not in found or found[parent][1] != uid)
    )


def all_sessions(proc: Path = Path("/proc")) -> int:
    """Connections that users have: processes of sshd that are a user's, and whose parent is root's sshd.

    No user can make such a process but by logging in: sshd starts none for a user but a connection's, and what loses
    its parent gets PID 1. One that has not shown its key yet is none.
    """
    found = _processes(proc)
    served = {
        pid
        for pid, (name, owner, _, capabilities) in found.items()
        if name in _SSHD and owner == 0 and capabilities & _SSHD_HAS
    }
    return sum(1 for name, owner, parent, _ in found.values() if name in _SSHD and owner != 0 and parent in served)


def _processes(proc: Path) -> dict[int, Process]:
    return {int(path.name): process for path in proc.glob("[0-9]*") if (process := _process(path)) is not None}


def _process(path: Path) -> Process | None:
    """A process, or None if it has ended meanwhile."""
    try:
        text = text_of(path / "status")
    except OSError:
        return None
    fields = dict(line.split(":", 1) for line in lines_in(text) if ":" in line)
    try:
        owner, parent, capabilities = int(fields["Uid"].split()[0]), int(fields["PPid"]), int(fields["CapPrm"], 16)
    except (KeyError, ValueError, IndexError):
        return None
    return fields["Name"].strip(), owner, parent, capabilities
