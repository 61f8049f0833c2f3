"""slurmdbd.conf as this pod got it: the rendered file has everything but the password."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from images.common.files import Owner, install_secret
from images.common.mariadb import quoted
from images.common.process import RefusedError

RENDERED: Final = Path("/config/slurmdbd/slurmdbd.conf")

KEYS: Final = Path("/run/slurmstack/keys")
CERTIFICATES: Final = {
    Path("/secrets/database-ca/ca.crt"): KEYS / "database-ca.crt",
    Path("/secrets/database-client/tls.crt"): KEYS / "database-client.crt",
    Path("/secrets/database-client/tls.key"): KEYS / "database-client.key",
}
"""For TLS with an external database: slurmdbd is not root, and could not read them in a Secret volume."""

_TLS_OPTIONS: Final = {
    "SSL_CA": "ssl-ca", "SSL_CAPATH": "ssl-capath", "SSL_CERT": "ssl-cert", "SSL_KEY": "ssl-key",
    "SSL_CIPHER": "ssl-cipher",
}  # fmt: skip
"""What `StorageParameters` may have (slurmdbd.conf(5)), and the same in an option file of MariaDB's programs."""


@dataclass(frozen=True, kw_only=True)
class Storage:
    """How slurmdbd reaches its database."""

    host: str
    port: int
    user: str
    database: str
    password: str = field(repr=False)
    tls: Mapping[str, str] = field(default_factory=dict)
    """Options of MariaDB's programs, without dashes; empty: no TLS is asked for."""

    @property
    def where(self) -> str:
        """For messages."""
        return f"{self.host}:{self.port}"

    def client_options(self) -> str:
        """Option file of the mariadb program: with it, no password is on a command line."""
        lines = [
            "[client]", f"host={self.host}", f"port={self.port}", f"user={quoted(self.user)}",
            f"password={quoted(self.password)}", "protocol=tcp", "connect-timeout=5",
            "default-character-set=utf8mb4",
            # Without TLS in the stack file, an older server that has none is as good as one that has.
            *([f"{key}={value}" for key, value in self.tls.items()] or ["skip-ssl-verify-server-cert"]),
        ]  # fmt: skip
        return "\n".join(lines) + "\n"


def read_settings(text: str) -> dict[str, str]:
    """Keys in small letters and their values."""
    pairs = (line.partition("=") for line in text.splitlines() if not line.lstrip().startswith("#") and "=" in line)
    return {key.strip().lower(): value.strip() for key, _, value in pairs}


def storage_of(text: str, password: str) -> Storage:
    """What a slurmdbd.conf says about its database."""
    settings = read_settings(text)
    parameters = dict(
        part.split("=", 1) for part in settings.get("storageparameters", "").split(",") if part.count("=") >= 1
    )
    return Storage(
        host=settings["storagehost"],
        port=int(settings.get("storageport", "3306")),
        user=settings["storageuser"],
        database=settings.get("storageloc", "slurm_acct_db"),
        password=password,
        tls={_TLS_OPTIONS[key.upper()]: value for key, value in parameters.items() if key.upper() in _TLS_OPTIONS},
    )


def with_password(text: str, password: str) -> str:
    """The slurmdbd.conf that slurmdbd itself reads. Raises RefusedError."""
    if not password or re.search(r"""[\s#"\\]""", password):
        raise RefusedError(
            'the password of the database is empty or has a space, a line break or one of # " \\, which slurmdbd.conf '
            "cannot hold: give the database user another one"
        )
    return text.rstrip("\n") + f"\nStoragePass={password}\n"


def install_certificates(owner: Owner, log: Callable[[str], None]) -> None:
    """Copy what the pod has for TLS to where slurmdbd.conf says it is, for slurmdbd's user."""
    for source, target in CERTIFICATES.items():
        if source.is_file():
            install_secret("the certificate", source, target, log, owner=owner)
