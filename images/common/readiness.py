"""What the programs of all pods wait for before they start a daemon."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Final

from images.common.files import read_document
from images.common.jail_view import homes_directory
from images.common.mountinfo import expect_volume
from images.common.wait import wait_for

MUNGE_SOCKET: Final = Path("/run/munge/munge.socket.2")
JAIL_MARKER: Final = Path(".slurmstack/populated")
"""Relative to the jail's root; populate writes it last: a half-populated jail is never taken for a whole one."""

ACCOUNTS_MARKER: Final = Path(".slurmstack/accounts")
"""In a named root nobody is known before the program `users` has been there. It says where it has made homes, too."""

HOMES_APART: Final = {"homes": "apart"}
"""In that file, where homes are on a volume of their own."""

SLURMCTLD_PORT: Final = 6817


def can_connect(address: str) -> bool:
    """Whether something listens at `HOST[:PORT]`."""
    host, _, port = address.partition(":")
    try:
        with socket.create_connection((host, int(port or SLURMCTLD_PORT)), timeout=1.0):
            return True
    except OSError:
        return False


def accepts_connections(path: Path) -> bool:
    """Whether somebody listens on a socket. The file alone may be left over from a container that ended."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(1.0)
        try:
            client.connect(str(path))
        except OSError:
            return False
    return True


def wait_for_munge(log: Callable[[str], None]) -> None:
    """Return when munged of this pod answers."""
    wait_for("munged (its own container of this pod)", lambda: accepts_connections(MUNGE_SOCKET), log)


def wait_for_jail(jail: Path, log: Callable[[str], None]) -> None:
    """Return when the jail's volume has a whole root file system. Raises WrongFilesystemError."""
    expect_volume(jail)
    marker = jail / JAIL_MARKER
    wait_for(
        f"the jail: no {marker} yet (the job that populates it writes it last)", marker.is_file, log, poll_seconds=0.1
    )
    known, apart = jail / ACCOUNTS_MARKER, homes_directory() is not None

    def is_settled() -> bool:
        found = read_document(known)
        if found is None:
            return not (apart or os.environ.get("JAIL_ROOT"))
        return (found == HOMES_APART) == apart

    missing = f"no {known} yet, or it says that homes are elsewhere than this pod has them"
    wait_for(f"accounts: {missing} (the job `users` writes it, or tells why not)", is_settled, log, poll_seconds=0.1)


def wait_for_controller(address: str, log: Callable[[str], None]) -> None:
    """Return when slurmctld listens: slurmd and sackd give up at once when they cannot fetch their configuration."""
    wait_for(f"slurmctld at {address}", lambda: can_connect(address), log, poll_seconds=0.1)
