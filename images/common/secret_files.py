"""Files of Secret volumes, which cannot give them the owner and mode that daemons insist on."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

from images.common.files import Owner, write_atomically
from images.common.wait import wait_for

JWT_SECRET: Final = Path("/secrets/jwt/jwt_hs256.key")
JWT_KEY: Final = Path("/run/slurmstack/keys/jwt_hs256.key")
"""The key that signs tokens: what AuthAltParameters in slurm.conf and slurmdbd.conf name. Only slurmctld and slurmdbd
have the file: all other daemons and commands carry tokens, and never look into them."""

HOST_KEY: Final = Path("/etc/ssh/ssh_host_ed25519_key")
"""By which users know the login nodes."""

_OTHERS_WRITE: Final = 0o022


def install_secret(
    what: str,
    secret: Path,
    target: Path,
    log: Callable[[str], None],
    *,
    owner: Owner | None = None,
    mode: int = 0o400,
) -> None:
    """Copy a file, when it is there, to one that only its owner can read.

    It is copied at each start: a rotated key is taken by restarting the daemon.
    """
    wait_for(f"{what} {secret}", secret.is_file, log)
    directory = target.parent
    if not directory.is_dir():
        directory.mkdir(parents=True)
        directory.chmod(0o755)
    elif (mode_there := stat.S_IMODE(directory.stat().st_mode)) & _OTHERS_WRITE:
        # A volume of the pod: Kubernetes makes it for everybody to write, and who writes here could put another file in
        # the place of this one.
        directory.chmod(mode_there & ~_OTHERS_WRITE)
    write_atomically(target, secret.read_bytes(), mode=mode, owner=owner)


def install_jwt_key(owner: Owner, log: Callable[[str], None]) -> None:
    """Copy the key of the tokens for slurmctld or slurmdbd."""
    install_secret("the key of the tokens", JWT_SECRET, JWT_KEY, log, owner=owner)
