"""The key that signs tokens, as slurmctld and slurmdbd want it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from images.common.files import write_atomically
from images.common.wait import wait_for

SECRET: Final = Path("/secrets/jwt/jwt_hs256.key")
KEY: Final = Path("/run/slurmstack/keys/jwt_hs256.key")
"""What AuthAltParameters in slurm.conf and slurmdbd.conf name. Only slurmctld and slurmdbd have the file: all other
daemons and commands carry tokens, and never look into them."""


def install_jwt_key(
    uid: int, gid: int, log: Callable[[str], None], *, secret: Path = SECRET, target: Path = KEY
) -> None:
    """Copy the key out of the Secret volume to a file that only the daemon's user can read, as Slurm insists.

    It is copied at each start: a rotated key is taken by restarting the daemon.
    """
    wait_for(f"the key of the tokens {secret}", secret.is_file, log)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.parent.chmod(0o755)
    write_atomically(target, secret.read_bytes(), mode=0o400, owner=(uid, gid))
