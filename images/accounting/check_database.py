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
from collections.abc import Callable, Iterable, Mapping
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

KNOWN_SCHEMAS: Final = {"24.11": 16, "26.05": 16}
"""Release of Slurm -> the number that its slurmdbd writes to `convert_version_table` of a new database. Read there
after a start of Debian's 24.11.5 and 26.05.5; slurmdbd refuses a larger one."""

OLDEST_SERVERS: Final = {"MariaDB": (10, 2, 1), "MySQL": (5, 7, 0)}
"""What the oldest server must be. MariaDB before 10.2.1 and MySQL before 5.7 cut or refuse defaults of `text` columns
and long keys, which slurmdbd's tables have."""

_NO_DATABASE: Final = 1049

_CANNOT_REACH: Final = frozenset({1040, 1053, 1152, 1158, 1159, 1160, 1161, 2002, 2003, 2005, 2006, 2012, 2013})
"""Too many connections, shutting down, network errors: such a server may answer in a moment."""

_DENIED: Final = (
    "the database at {where} refuses user {user!r}: {said}\n"
    "Is the password in the Secret the user's, and may the user come from the cluster's addresses?"
)
_TLS: Final = (
    "no TLS with the database at {where}: {said}\n"
    "Look at accounting.database.external.tls: `ca` must have signed the server's certificate, which must name the host"
)
_RIGHTS: Final = (
    "user {user!r} has not enough rights in the database at {where}: {said}\n"
    "GRANT ALL PRIVILEGES ON {database}.* TO the user"
)
_REFUSALS: Final = {
    **dict.fromkeys((1045, 1130, 1251, 1698, 1862, 4151), _DENIED),
    **dict.fromkeys((2026, 3159), _TLS),
    **dict.fromkeys((1044, 1142, 1143, 1227, 1304, 1370, 1410, 1419), _RIGHTS),
}
"""Numbers of errors of the server, and what is said then."""

_PRIVILEGED: Final = (
    "CREATE TABLE OWN (number int not null, name text not null)",
    "INSERT INTO OWN VALUES (1, 'one')",
    "UPDATE OWN SET number = 2",
    "DELETE FROM OWN",
    "ALTER TABLE OWN ADD COLUMN other int",
    "CREATE INDEX other ON OWN (other)",
    "DROP TABLE OWN",
    "CREATE PROCEDURE OWN() SELECT 1",
    "CALL OWN()",
    "DROP PROCEDURE OWN",
)
"""What slurmdbd does with its tables and procedures; OWN stands for a name that nobody else uses."""


class UnreachableError(Exception):
    """The database does not answer at the moment."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What is known of a database that slurmdbd can work with."""

    server: str
    schema: int | None
    """None: slurmdbd has never used it."""


def check_database(storage: Storage, *, release: str, runner: Runner = run) -> Answer:
    """Try what slurmdbd of this release does with its database, which is made where there is none, as slurmdbd would.

    Raises UnreachableError or RefusedError.
    """
    with tempfile.NamedTemporaryFile("w", prefix="slurmstack-", suffix=".cnf") as file:  # made with mode 0600
        file.write(storage.client_options())
        file.flush()
        client = ["/usr/bin/mariadb", f"--defaults-file={file.name}", "--batch", "--skip-column-names"]

        def ask(sql: str, *, database: str = storage.database) -> str:
            result = runner([*client, f"--database={database}", f"--execute={sql}"], timeout=30.0)
            if _error_number(result) == _NO_DATABASE:
                ask(f"CREATE DATABASE `{storage.database}`", database="")
                return ask(sql)
            if not result.ok:
                raise _problem(storage, result)
            return result.stdout.strip()

        server = _check_server(storage, ask("SELECT VERSION()"))
        own = f"slurmstack_check_{secrets.token_hex(4)}"
        for statement in _PRIVILEGED:
            ask(statement.replace("OWN", own))
        there = ask("SHOW TABLES LIKE 'convert_version_table'")
        schema = ask("SELECT MAX(version) FROM convert_version_table") if there else ""
    if not schema.isdigit():
        return Answer(server=server, schema=None)
    known = KNOWN_SCHEMAS.get(release)
    if known is not None and int(schema) > known:
        raise RefusedError(
            f"the database {storage.database!r} at {storage.where} has a newer schema ({schema}) than "
            f"Slurm {release} knows ({known}): a newer slurmdbd has used it, and there is no way back.\n"
            "Set slurm.version to that release, or restore a dump that was made before"
        )
    return Answer(server=server, schema=int(schema))


def _problem(storage: Storage, result: Result) -> Exception:
    number, said = _error_number(result), result.message
    if number in _CANNOT_REACH or result.code == TIMED_OUT:
        return UnreachableError(said)
    message = _REFUSALS.get(number, "the database at {where} does not work: {said}")
    return RefusedError(message.format(where=storage.where, user=storage.user, database=storage.database, said=said))


def _check_server(storage: Storage, version: str) -> str:
    kind = "MariaDB" if "mariadb" in version.lower() else "MySQL"
    match = re.match(r"(?:5\.5\.5-)?(\d+)\.(\d+)\.(\d+)", version)
    found = tuple(map(int, match.groups())) if match else (0, 0, 0)
    if found < OLDEST_SERVERS[kind]:
        raise RefusedError(
            f"the database at {storage.where} is {kind} {version}: slurmdbd needs "
            f"{' or '.join(f'{name} {_dotted(least)}' for name, least in OLDEST_SERVERS.items())} or later"
        )
    return f"{kind} {_dotted(found)}"


def _error_number(result: Result) -> int:
    match = re.search(r"ERROR (\d+)", result.stderr)
    return int(match[1]) if match and not result.ok else 0


def _dotted(version: Iterable[int]) -> str:
    return ".".join(map(str, version))


def slurm_release() -> str:
    """`24.11` for the slurmdbd of this image. Itself it tells nothing as long as it has no configuration."""
    match = re.match(r"(\d+\.\d+)", run(["dpkg-query", "--show", "--showformat=${Version}", "slurmdbd"]).stdout)
    return match[1] if match else ""


def await_database(storage: Storage, log: Callable[[str], None], *, seconds: float | None) -> Answer:
    """Check the database until there is an answer.

    Raises RefusedError, also when it cannot be reached for `seconds` (None: wait for ever).
    """
    release, reminder, started = slurm_release(), Reminder(log, Clock()), time.monotonic()
    while True:
        try:
            return check_database(storage, release=release)
        except UnreachableError as error:
            if seconds is not None and time.monotonic() - started >= seconds:
                raise RefusedError(
                    f"the database at {storage.where} could not be reached for {seconds:g} s: {error}\n"
                    "Is the address right, does the server run, and does a firewall let the cluster in?"
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
        answer = await_database(storage, log, seconds=arguments.wait)
        schema = "never used" if answer.schema is None else f"schema {answer.schema}"
        log(f"the database at {storage.where} can be used: {answer.server}, {schema}")
