"""slurmdbd's database: a dump of one moment while slurmdbd writes, and putting one back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Final

from images.accounting.check_database import RENDERED, Storage, install_certificates, storage_of
from images.common.command import run
from images.common.log import Log
from images.common.mariadb import read_password
from images.common.process import CannotGoOnError, RefusedError

DUMP: Final = "/database.sql"
"""The dump's name in its snapshot."""

MARKS: Final = "slurmstack_restore"
"""A table of ours beside slurmdbd's, in no dump: how high numbers had come before a restore. It stays, so that one that
was interrupted, when the tables are empty, still knows."""

_JOB_IDS: Final = "job ids"
_FIRST_UNUSABLE: Final = 0x03FF0000
"""Slurm's MaxJobId by default. Ids of federations are above; slurmctld that is told to go on there begins with 1."""

_RUN: Final = Path("/run/slurmstack")


class Database:
    """The database that slurmdbd.conf names, with an option file for MariaDB's programs."""

    def __init__(self, storage: Storage, options: Path) -> None:
        self._storage = storage
        self._options = options

    @property
    def dump(self) -> list[str]:
        """Command line that writes all tables, as they were at one moment, to standard output.

        Procedures are left out: slurmdbd makes its own at each start.
        """
        name = self._storage.database
        how = ["--single-transaction", "--quick", "--skip-lock-tables", "--no-tablespaces", "--hex-blob"]
        left = ["--skip-triggers", f"--ignore-table={name}.{MARKS}"]
        return ["/usr/bin/mariadb-dump", f"--defaults-file={self._options}", *how, *left, name]

    @property
    def load(self) -> list[str]:
        """Command line that reads a dump from standard input; it ends at the first statement that fails."""
        return ["/usr/bin/mariadb", f"--defaults-file={self._options}", f"--database={self._storage.database}"]

    def ask(self, sql: str) -> list[str]:
        """Lines of the answer. Raises CannotGoOnError."""
        done = run([*self.load, "--batch", "--skip-column-names", f"--execute={sql}"], timeout=300.0)
        if not done.ok:
            raise CannotGoOnError(f"the database at {self._storage.where}: {done.message}")
        return done.stdout.splitlines()

    def tables(self) -> list[str]:
        """Names of its tables."""
        where = f"table_schema = '{self._storage.database}' AND table_type = 'BASE TABLE'"
        return self.ask(f"SELECT table_name FROM information_schema.tables WHERE {where}")  # noqa: S608  our own names

    def highest_id(self, cluster: str) -> int:
        """The highest job id that accounting has, or had before a restore, of this cluster; 0 without one."""
        tables, sql = self.tables(), ["SELECT 0"]
        if f"{cluster}_job_table" in tables:
            sql.append(f"SELECT MAX(id_job) FROM `{cluster}_job_table` WHERE id_job < {_FIRST_UNUSABLE}")  # noqa: S608
        if MARKS in tables:
            sql.append(f"SELECT value FROM {MARKS} WHERE name = '{_JOB_IDS}'")  # noqa: S608
        return max(int(line) for line in self.ask(" UNION ".join(sql)) if line != "NULL")

    def records(self, cluster: str, newest: int) -> dict[str, set[str]]:
        """What a dump has, before slurmdbd has seen it: the last so many jobs, and who may have some.

        `open`: jobs without an end, with the id of their array and their time. Nothing is there where no slurmctld had
        registered yet.
        """
        of_jobs, alive = f"FROM `{cluster}_job_table` WHERE deleted = 0", "WHERE deleted = 0"
        asked = {
            "jobs": f"SELECT id_job {of_jobs} ORDER BY job_db_inx DESC LIMIT {newest}",
            "associations": f"SELECT id_assoc FROM `{cluster}_assoc_table` {alive}",  # noqa: S608  our own names
            "users": f"SELECT name FROM user_table {alive}",  # noqa: S608
            "open": f"SELECT id_job, id_array_job, time_submit {of_jobs} AND time_end = 0",
        }
        is_there = f"{cluster}_job_table" in self.tables()
        return {what: {*self.ask(sql)} if is_there else set() for what, sql in asked.items()}

    def refuse_others(self, cluster: str) -> None:
        """Raise RefusedError where another cluster has its records here: they would be of the backup's time, too."""
        if "cluster_table" in self.tables():
            others = self.ask(f"SELECT name FROM cluster_table WHERE deleted = 0 AND name <> '{cluster}'")  # noqa: S608
            if others:
                raise RefusedError(
                    f"the database at {self._storage.where} has the records of other clusters, too, which would go: "
                    f"{', '.join(others)}. Give each cluster a database of its own"
                )

    def remember(self, cluster: str) -> None:
        """Keep how high numbers have come: of jobs, and those by which jobs in the queue know their associations.

        With the numbers of the backup's time, what was made since would share them with what is made afterwards.
        """
        self.ask(f"CREATE TABLE IF NOT EXISTS {MARKS} (name VARCHAR(190) PRIMARY KEY, value BIGINT UNSIGNED NOT NULL)")
        numbered = f"SELECT table_name, auto_increment FROM information_schema.tables WHERE {self._numbered}"  # noqa: S608
        rows = f"SELECT '{_JOB_IDS}', {self.highest_id(cluster)} UNION {numbered}"
        self.ask(f"INSERT INTO {MARKS} {rows} ON DUPLICATE KEY UPDATE value = GREATEST(value, VALUES(value))")

    def go_on_above(self) -> None:
        """Have new records get numbers above those that are remembered."""
        numbered = self.ask(f"SELECT table_name FROM information_schema.tables WHERE {self._numbered}")  # noqa: S608
        for table, number in (line.split("\t") for line in self.ask(f"SELECT name, value FROM {MARKS}")):  # noqa: S608
            if table in numbered:
                self.ask(f"ALTER TABLE `{table}` AUTO_INCREMENT = {int(number) + 1}")

    @property
    def _numbered(self) -> str:
        """Tables whose records the database numbers."""
        return f"table_schema = '{self._storage.database}' AND auto_increment IS NOT NULL"

    def empty(self) -> None:
        """Drop all tables of slurmdbd: those that a dump does not have would be of another time."""
        tables = ", ".join(f"`{table}`" for table in self.tables() if table != MARKS)
        if tables:
            self.ask(f"SET FOREIGN_KEY_CHECKS = 0; DROP TABLE {tables}")


def of_slurmdbd() -> Storage:
    """The database that this pod's slurmdbd.conf names."""
    return storage_of(RENDERED.read_text(encoding="utf-8"), read_password())


@contextmanager
def opened(storage: Storage, log: Log) -> Iterator[Database]:
    """The database; the file with its password goes at the end."""
    install_certificates((0, 0), log)
    with NamedTemporaryFile("w", dir=_RUN, suffix=".cnf", encoding="utf-8") as options:  # made with mode 0600
        # mariadb-dump ends at an option that it does not know.
        options.write(storage.client_options().replace("connect-timeout=", "loose-connect-timeout="))
        options.flush()
        yield Database(storage, Path(options.name))
