"""sshd: users log in to the jail. It starts when the jail is whole."""

from __future__ import annotations

import os
import pwd
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, NoReturn

from images.common.boundary import (
    RUN_SLURM,
    OpenRootError,
    own_directory,
    seal_root,
    settle_shared,
    without_set_up,
)
from images.common.command import run
from images.common.files import write_atomically
from images.common.jail_mounts import bind_mounts, parse_mounts
from images.common.jail_view import LOGIN_BINDS, JailViewError, bind_into_jail, sssd_binds
from images.common.log import Log
from images.common.mountinfo import WrongFilesystemError
from images.common.process import become, end_on_sigterm
from images.common.readiness import wait_for_jail, wait_for_munge
from images.common.wait import wait_for
from images.login.access import parse_limits, set_up_access

SECRET_KEY: Final = Path("/secrets/ssh/ssh_host_ed25519_key")
HOST_KEY: Final = Path("/etc/ssh/ssh_host_ed25519_key")
CONFIG: Final = Path("/usr/lib/slurmstack/images/login/sshd_config")


class UnsafeJailError(Exception):
    """sshd would refuse to use the jail, and tell only the log of each failed login why."""


def check_chroot(jail: Path, owner: int = 0) -> None:
    """Sshd insists that the way to a ChrootDirectory belongs to root and that nobody else may write there."""
    for path in (jail, *jail.parents):
        status = path.stat()
        if status.st_uid != owner or status.st_mode & 0o022:
            mode = f"{status.st_mode & 0o7777:04o}"
            raise UnsafeJailError(
                f"{path} has owner {status.st_uid} and mode {mode}; sshd wants root and no write permission for others"
            )


def install_host_key(secret: Path, target: Path) -> None:
    """Copy the host key out of the Secret volume: sshd refuses a key that a group may read."""
    write_atomically(target, secret.read_bytes(), mode=0o600)


def prepare(jail: Path, log: Callable[[str], None]) -> None:
    """Everything that sshd needs. Raises JailViewError, UnsafeJailError and WrongFilesystemError."""
    sackd = pwd.getpwnam("slurm")
    own_directory(RUN_SLURM, sackd.pw_uid, sackd.pw_gid)
    settle_shared()
    wait_for(f"the host key {SECRET_KEY}", SECRET_KEY.is_file, log)
    install_host_key(SECRET_KEY, HOST_KEY)
    wait_for_munge(log)
    wait_for_jail(jail, log)
    bind_into_jail(jail, (*LOGIN_BINDS, *sssd_binds(jail, log)), run, log)
    bind_mounts(jail, parse_mounts(os.environ.get("MOUNTS", "")), run, log)
    check_chroot(jail)
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)


def main() -> NoReturn:
    """Entry point."""
    end_on_sigterm()
    log = Log("sshd")
    limits = parse_limits(os.environ.get("USER_LIMITS", ""))
    try:
        prepare(Path(os.environ.get("JAIL", "/jail")), log)
        options = set_up_access(limits, log, sssd=bool(os.environ.get("SSSD_PIPES")))
        seal_root(run)
    except (JailViewError, OpenRootError, UnsafeJailError, WrongFilesystemError) as error:
        log(str(error))
        sys.exit(1)
    become(without_set_up(["/usr/sbin/sshd", "-D", "-e", "-f", str(CONFIG), *options], os.getpid()), log)


if __name__ == "__main__":
    main()
