"""What mariadbd and its clients are told: option files, the password, and the statements of each start."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

PASSWORD: Final = Path("/secrets/database/password")

RUN: Final = Path("/run/mysqld")
SOCKET: Final = RUN / "mysqld.sock"
OPTIONS: Final = RUN / "my.cnf"
STATEMENTS: Final = RUN / "start.sql"
PROBE: Final = RUN / "probe.cnf"
"""Option file of the readiness probe: `mariadb --defaults-file=/run/mysqld/probe.cnf --execute 'SELECT 1'`."""

PORT: Final = 3306
USER: Final = "slurm"
DATABASE: Final = "slurm_acct_db"

MEBIBYTE: Final = 2**20
LEAST_POOL: Final = 64 * MEBIBYTE
"""Below that, slurmdbd's queries over a month of jobs wait for the disk."""


def read_password() -> str:
    """The database password, without the line break that an editor leaves at its end."""
    return PASSWORD.read_text(encoding="utf-8").rstrip("\n")


def quoted(value: str) -> str:
    """A value in an option file, whatever characters it has."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{escaped}"'


def options(*, data: Path, memory: int) -> str:
    """The text of my.cnf. `memory` is the pod's memory limit in bytes.

    Half of it is InnoDB's buffer pool; the rest is for connections, the log buffer and reports. The other values are
    what slurmdbd asks for at its start (accounting_storage/mysql compares the server's variables with its own table and
    logs the difference; also https://slurm.schedmd.com/accounting.html).
    """
    pool = max(LEAST_POOL, memory // 2) // MEBIBYTE
    return f"""\
[mariadbd]
datadir={data}
socket={SOCKET}
pid-file={RUN}/mariadbd.pid
port={PORT}
bind-address=*
skip-name-resolve
character-set-server=utf8mb4
collation-server=utf8mb4_general_ci
innodb_buffer_pool_size={pool}M
innodb_log_file_size={max(48, min(512, pool // 2))}M
# A rollup or purge of a large cluster holds its locks for minutes.
innodb_lock_wait_timeout=900
# On by default since MariaDB 11.6; slurmdbd ends when a write conflicts with it (26.05.5 says so at its start).
loose-innodb-snapshot-isolation=OFF
max_allowed_packet=64M
# Each commit is on the disk before slurmdbd hears of it: slurmctld then forgets the record.
innodb_flush_log_at_trx_commit=1
# Containers may use neither io_uring nor many AIO contexts.
innodb_use_native_aio=OFF
skip-log-bin
skip-symbolic-links
local-infile=OFF
max_connections=100
"""


def password_hash(password: str) -> str:
    """What `mysql_native_password` stores: with it, nobody can log in, and no password is in a file of SQL."""
    once = hashlib.sha1(password.encode()).digest()  # noqa: S324  the server's own scheme
    return "*" + hashlib.sha1(once).hexdigest().upper()  # noqa: S324


def statements(password: str) -> str:
    """SQL that makes the database and its only user over the network, with the password of the Secret as it is now.

    mariadbd runs it before it accepts connections (`init-file`): one statement a line, no comments. All privileges on
    the one database are what slurmdbd needs: it makes and changes its tables itself. root stays on the socket.
    """
    login = f"IDENTIFIED VIA mysql_native_password USING '{password_hash(password)}'"
    lines = (
        f"CREATE DATABASE IF NOT EXISTS {DATABASE}",
        f"CREATE USER IF NOT EXISTS {USER}@'%' {login}",
        f"ALTER USER {USER}@'%' {login}",
        f"GRANT ALL PRIVILEGES ON {DATABASE}.* TO {USER}@'%'",
    )
    return "".join(f"{line};\n" for line in lines)


def probe_options(password: str) -> str:
    """Option file with which slurmdbd's own user asks over the network, as slurmdbd does."""
    return f"[client]\nhost=127.0.0.1\nport={PORT}\nuser={USER}\npassword={quoted(password)}\ndatabase={DATABASE}\n"
