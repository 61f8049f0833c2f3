"""Native sidecars: munged authenticates Slurm's messages, in every pod; sssd knows the users of a directory service.

sssd's configuration (LDAP, Active Directory, FreeIPA) comes from a Secret: the key `sssd.conf`, and further keys as
files below /etc/sssd/secrets, for certificates and passwords that the configuration names.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable
from pathlib import Path
from typing import Final

from images.common.files import install_secret, write_atomically
from images.common.process import CannotGoOnError, become, drop_privileges, program
from images.common.wait import wait_for

MUNGE_KEY = Path("/secrets/munge/munge.key")

MUNGE_THREADS: Final = 64
"""Instead of two: each waits 2 s for a client that says nothing."""


def prepare_munged(uid: int, gid: int, log: Callable[[str], None]) -> None:
    """Give munged the key and the directories with the owner and modes that it insists on.

    A Secret volume can give neither: munged refuses a key that another user owns, and a socket directory that a group
    may write.
    """
    for directory, mode in ((Path("/run/munge"), 0o755), (Path("/run/munged"), 0o700)):
        directory.mkdir(parents=True, exist_ok=True)
        os.chown(directory, uid, gid)
        directory.chmod(mode)
    install_secret("the key", MUNGE_KEY, Path("/run/munged/munge.key"), log, owner=(uid, gid))


MUNGED: Final = (
    "/usr/sbin/munged", "--foreground", f"--num-threads={MUNGE_THREADS}", "--key-file=/run/munged/munge.key",
    "--socket=/run/munge/munge.socket.2", "--seed-file=/run/munged/munge.seed", "--pid-file=/run/munged/munge.pid",
)  # fmt: skip


def munged() -> None:
    """Entry point."""
    with program("munged") as log:
        user = pwd.getpwnam("munge")
        prepare_munged(user.pw_uid, user.pw_gid, log)
        drop_privileges(user)
        become(MUNGED, log)


SSSD_SECRET: Final = Path("/secrets/sssd")
SSSD_CONFIG: Final = "sssd.conf"
SSSD: Final = "/usr/sbin/sssd"

_ETC: Final = Path("/etc/sssd")
_PIPES: Final = Path("/var/lib/sss/pipes")
_DIRECTORIES: Final = {_ETC: 0o711, _ETC / "secrets": 0o700, _PIPES: 0o755, _PIPES / "private": 0o750}
"""With the modes of Debian's package. The pipes lie on a volume that is empty when the pod starts."""


def prepare_sssd(log: Callable[[str], None]) -> None:
    """Write the configuration with the owner and mode that sssd insists on, and its directories."""
    for directory, mode in _DIRECTORIES.items():
        directory.mkdir(parents=True, exist_ok=True)
        directory.chmod(mode)
    for stale in _PIPES.iterdir():
        # Sockets of the container before this one, where it has ended: whoever waits for them must not find them.
        if not stale.is_dir():
            stale.unlink()
    names = sorted(path.name for path in SSSD_SECRET.iterdir() if path.is_file() and not path.name.startswith("."))
    for name in names:
        target = _ETC / (name if name == SSSD_CONFIG else f"secrets/{name}")
        write_atomically(target, (SSSD_SECRET / name).read_bytes(), mode=0o600)
    log(f"configuration from the keys {', '.join(names)} of the Secret")


def sssd() -> None:
    """Entry point."""
    with program("sssd") as log:
        if not Path(SSSD).exists():
            raise CannotGoOnError(
                "this image has no SSSD; Debian's suite with Slurm 24.11 has it, the one with 26.05 has not"
            )
        wait_for(f"the key {SSSD_CONFIG} of the Secret ({SSSD_SECRET})", (SSSD_SECRET / SSSD_CONFIG).is_file, log)
        prepare_sssd(log)
        become([SSSD, "--interactive", "--logger=stderr"], log)
