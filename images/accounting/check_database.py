"""check-database: says in one message why slurmdbd could not work with its database, before anything is tried with it.

Exit status 0: it can. 2: it cannot, and trying again is useless. Arguments: `--wait SECONDS` for a database that cannot
be reached yet. Which one it is says slurmdbd.conf as this pod got it, which has everything but the password.
"""

from __future__ import annotations

import argparse
import pwd
import re
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from images.common.command import TIMED_OUT, Result, Runner, run
from images.common.files import Owner, install_secret
from images.common.mariadb import PASSWORD, quoted, read_password
from images.common.process import RefusedError, program
from images.common.wait import Clock, Reminder, wait_for

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


def storage_of(text: str, password: str) -> Storage:
    """What a slurmdbd.conf says about its database."""
    pairs = (line.partition("=") for line in text.splitlines())
    settings = {key.lower(): value for key, _, value in pairs}
    parameters = (part.partition("=") for part in settings.get("storageparameters", "").split(","))
    return Storage(
        host=settings["storagehost"],
        port=int(settings["storageport"]),
        user=settings["storageuser"],
        database=settings["storageloc"],
        password=password,
        tls={_TLS_OPTIONS[key.upper()]: value for key, _, value in parameters if key.upper() in _TLS_OPTIONS},
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


def await_conf(owner: Owner, log: Callable[[str], None]) -> tuple[str, Storage]:
    """The rendered file and the database that it names, once it and the password are there."""
    for path in (RENDERED, PASSWORD):
        wait_for(f"the file {path}", path.is_file, log)
    install_certificates(owner, log)
    text = RENDERED.read_text(encoding="utf-8")
    return text, storage_of(text, read_password())


# ---------------------------------------------------------------- the check

POLL_SECONDS: Final = 1.0

_NO_DATABASE: Final = 1049

_CANNOT_REACH: Final = frozenset({1040, 1053, 1152, 1158, 1159, 1160, 1161, 2002, 2003, 2005, 2006, 2012, 2013})
"""Too many connections, shutting down, network errors: such a server may answer in a moment."""

_PRIVILEGED: Final = (
    "CREATE TABLE OWN (number int)", "DROP TABLE OWN", "CREATE PROCEDURE OWN() SELECT 1", "DROP PROCEDURE OWN",
)  # fmt: skip
"""Some of what slurmdbd does with its database; OWN stands for a name that nobody else uses."""


@contextmanager
def mariadb_client(storage: Storage) -> Iterator[list[str]]:
    """Begin of a command line that asks the database, as slurmdbd's user."""
    with tempfile.NamedTemporaryFile("w", prefix="slurmstack-", suffix=".cnf") as file:  # made with mode 0600
        file.write(storage.client_options())
        file.flush()
        yield ["/usr/bin/mariadb", f"--defaults-file={file.name}", "--batch", "--skip-column-names"]


class UnreachableError(Exception):
    """The database does not answer at the moment."""


def check_database(storage: Storage, runner: Runner = run) -> None:
    """Try what slurmdbd does with its database, which is made where there is none, as slurmdbd would.

    Raises UnreachableError, or RefusedError with the server's own words.
    """
    with mariadb_client(storage) as client:

        def ask(sql: str, *, database: str = storage.database) -> None:
            result = runner([*client, f"--database={database}", f"--execute={sql}"], timeout=30.0)
            number = _error_number(result)
            if number == _NO_DATABASE:
                ask(f"CREATE DATABASE `{storage.database}`", database="")
                ask(sql)
            elif number in _CANNOT_REACH or result.code == TIMED_OUT:
                raise UnreachableError(result.message)
            elif not result.ok:
                raise RefusedError(f"slurmdbd cannot use {storage.database!r} at {storage.where}: {result.message}")

        own = f"slurmstack_check_{secrets.token_hex(4)}"
        for statement in _PRIVILEGED:
            ask(statement.replace("OWN", own))


def _error_number(result: Result) -> int:
    match = re.search(r"ERROR (\d+)", result.stderr)
    return int(match[1]) if match and not result.ok else 0


def await_database(storage: Storage, log: Callable[[str], None], *, seconds: float | None) -> None:
    """Check the database until there is an answer.

    Raises RefusedError, also when it cannot be reached for `seconds` (None: wait for ever).
    """
    reminder, started = Reminder(log, Clock()), time.monotonic()
    while True:
        try:
            return check_database(storage)
        except UnreachableError as error:
            if seconds is not None and time.monotonic() - started >= seconds:
                raise RefusedError(
                    f"the database at {storage.where} could not be reached for {seconds:g} s: {error}"
                ) from error
            reminder.waiting(f"the database at {storage.where}: {error}")
            time.sleep(POLL_SECONDS)


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="check-database")
    parser.add_argument("--wait", type=float, required=True)
    arguments = parser.parse_args()
    with program("check-database") as log:
        owner = pwd.getpwnam("slurm")
        _, storage = await_conf((owner.pw_uid, owner.pw_gid), log)
        await_database(storage, log, seconds=arguments.wait)
        log(f"the database at {storage.where} can be used")
