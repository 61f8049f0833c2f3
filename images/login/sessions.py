"""How many sessions a user has on this login node: counted by the processes of sshd."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from images.common.files import lines_in, text_of

_SSHD: Final = frozenset({"sshd", "sshd-session"})
"""Names of the process that serves a connection; the second since OpenSSH 9.8. Those that are not logged in yet are
served by `sshd-auth` (since OpenSSH 10)."""

Process = tuple[str, int, int]
"""Name, real uid and parent."""


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
    return {int(path.name): process for path in proc.glob("[0-9]*") if (process := _process(path)) is not None}


def _process(path: Path) -> Process | None:
    """A process, or None if it has ended meanwhile."""
    try:
        text = text_of(path / "status")
    except OSError:
        return None
    fields = dict(line.split(":", 1) for line in lines_in(text) if ":" in line)
    try:
        owner, parent = int(fields["Uid"].split()[0]), int(fields["PPid"])
    except (KeyError, ValueError, IndexError):
        return None
    return fields["Name"].strip(), owner, parent
