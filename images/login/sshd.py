"""sshd: users log in to the jail. It starts when the jail is whole."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable
from pathlib import Path
from typing import Final

from images.common.boundary import (
    RUN_SLURM,
    own_directory,
    protect_cgroups,
    seal_root,
    settle_shared,
    without_set_up,
)
from images.common.command import run
from images.common.jail_roots import hidden
from images.common.jail_view import LOGIN_BINDS, bind_into_jail, sssd_binds, user_volumes
from images.common.process import CannotGoOnError, become, program
from images.common.readiness import wait_for_jail, wait_for_munge
from images.common.secret_files import HOST_KEY, install_secret
from images.login import shares
from images.login.access import parse_limits, set_up_access

SECRET_KEY: Final = Path("/secrets/ssh/ssh_host_ed25519_key")
CONFIG: Final = Path("/usr/lib/slurmstack/images/login/sshd_config")


def check_chroot(jail: Path, owner: int = 0) -> None:
    """Sshd insists that the way to a ChrootDirectory belongs to root and that nobody else may write there.

    Raises CannotGoOnError: sshd would refuse to use the jail, and tell only the log of each failed login why.
    """
    for path in (jail, *jail.parents):
        status = path.stat()
        if status.st_uid != owner or status.st_mode & 0o022:
            mode = f"{status.st_mode & 0o7777:04o}"
            raise CannotGoOnError(
                f"{path} has owner {status.st_uid} and mode {mode}; sshd wants root and no write permission for others"
            )


def prepare(jail: Path, log: Callable[[str], None]) -> None:
    """Everything that sshd needs. Raises CannotGoOnError."""
    sackd = pwd.getpwnam("slurm")
    own_directory(RUN_SLURM, sackd.pw_uid, sackd.pw_gid)
    settle_shared()
    install_secret("the host key", SECRET_KEY, HOST_KEY, log, mode=0o600)
    wait_for_munge(log)
    wait_for_jail(jail, log)
    volumes = user_volumes(os.environ.get("MOUNTS", ""))
    bind_into_jail(jail, (*LOGIN_BINDS, *hidden(), *sssd_binds(jail, log), *volumes), log)
    protect_cgroups(jail, run)
    check_chroot(jail)
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)


def main() -> None:
    """Entry point."""
    with program("sshd") as log:
        limits = parse_limits(os.environ.get("USER_LIMITS", ""))
        prepare(Path(os.environ.get("JAIL", "/jail")), log)
        shares.set_up(limits, run, log)
        options = set_up_access(limits, log, sssd=bool(os.environ.get("SSSD_PIPES")))
        seal_root(run)
        become(without_set_up(["/usr/sbin/sshd", "-D", "-e", "-f", str(CONFIG), *options], os.getpid()), log)
