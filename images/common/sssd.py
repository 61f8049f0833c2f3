"""sssd: knows the users of a directory service (LDAP, Active Directory, FreeIPA). A native sidecar.

Its configuration comes from a Secret: the key `sssd.conf`, and further keys as files below /etc/sssd/secrets, for
certificates and passwords that the configuration names.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from images.common.files import write_atomically
from images.common.process import CannotGoOnError, become, program
from images.common.wait import wait_for

SECRET: Final = Path("/secrets/sssd")
CONFIG: Final = "sssd.conf"
SSSD: Final = "/usr/sbin/sssd"

_ETC: Final = Path("/etc/sssd")
_PIPES: Final = Path("/var/lib/sss/pipes")
_DIRECTORIES: Final = {_ETC: 0o711, _ETC / "secrets": 0o700, _PIPES: 0o755, _PIPES / "private": 0o750}
"""With the modes of Debian's package. The pipes lie on a volume that is empty when the pod starts."""


def prepare(log: Callable[[str], None]) -> None:
    """Write the configuration with the owner and mode that sssd insists on, and its directories."""
    for directory, mode in _DIRECTORIES.items():
        directory.mkdir(parents=True, exist_ok=True)
        directory.chmod(mode)
    for stale in _PIPES.iterdir():
        # Sockets of the container before this one, where it has ended: whoever waits for them must not find them.
        if not stale.is_dir():
            stale.unlink()
    names = sorted(path.name for path in SECRET.iterdir() if path.is_file() and not path.name.startswith("."))
    for name in names:
        target = _ETC / (name if name == CONFIG else f"secrets/{name}")
        write_atomically(target, (SECRET / name).read_bytes(), mode=0o600)
    log(f"configuration from the keys {', '.join(names)} of the Secret")


def main() -> None:
    """Entry point."""
    with program("sssd") as log:
        if not Path(SSSD).exists():
            raise CannotGoOnError(
                "this image has no SSSD; Debian's suite with Slurm 24.11 has it, the one with 26.05 has not"
            )
        wait_for(f"the key {CONFIG} of the Secret ({SECRET})", (SECRET / CONFIG).is_file, log)
        prepare(log)
        become([SSSD, "--interactive", "--logger=stderr"], log)
