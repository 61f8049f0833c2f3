"""slurmdbd's database: a dump of one moment while slurmdbd writes, and putting one back."""

from __future__ import annotations

import calendar
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from images.accounting.check_database import RENDERED, Storage, install_certificates, storage_of
from images.backup.backups import ID_FORMAT
from images.common.command import run
from images.common.log import Log
from images.common.mariadb import read_password
from images.common.process import CannotGoOnError, RefusedError

DUMP: Final = "/database.sql"
"""The dump's name in its snapshot."""

MARKS: Final = "slurmstack_restore"
"""A table of ours beside slurmdbd's, in no dump: how high numbers had come before a restore. It stays, so that one that
was interrupted, when the tables are empty, still knows."""

OPEN: Final = "slurmstack_open"
"""Another one: records of jobs that are in the queue while only the database is put back (`Database.keep_open`)."""

OPEN_STEPS: Final = "slurmstack_open_steps"
"""Those of their steps."""

_OWN: Final = (MARKS, OPEN, OPEN_STEPS)
_KEPT: Final = {"job": OPEN, "step": OPEN_STEPS}
"""Kinds of slurmdbd's tables of a cluster -> where their records are kept."""

_JOB_IDS: Final = "job ids"
_LOADING: Final = "loading"
_FIRST_UNUSABLE: Final = 0x03FF0000
"""Slurm's MaxJobId by default. Ids of federations are above; slurmctld that is told to go on there begins with 1."""

_CLIENT: Final = "/usr/bin/mariadb"
_DUMPER: Final = "/usr/bin/mariadb-dump"
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
        how = [
            "--single-transaction",
            "--quick",
            "--skip-lock-tables",
            "--no-tablespaces",
            "--hex-blob",
            "--skip-triggers",
            *(f"--ignore-table={self._storage.database}.{table}" for table in _OWN),
        ]
        return [_DUMPER, f"--defaults-file={self._options}", *how, self._storage.database]

    @property
    def load(self) -> list[str]:
        """Command line that reads a dump from standard input; it ends at the first statement that fails."""
        return [_CLIENT, f"--defaults-file={self._options}", f"--database={self._storage.database}"]

    def ask(self, sql: str, *, seconds: float = 300.0) -> list[str]:
        """Lines of the answer. Raises CannotGoOnError."""
        batch = ["--batch", "--skip-column-names", f"--execute={sql}"]
        done = run([*self.load, *batch], timeout=seconds)
        if not done.ok:
            raise CannotGoOnError(f"the database at {self._storage.where}: {done.message}")
        return done.stdout.splitlines()

    def tables(self, like: str = "%") -> list[str]:
        """Names of its tables."""
        where = f"table_schema = '{self._storage.database}' AND table_type = 'BASE TABLE' AND table_name LIKE '{like}'"
        return self.ask(f"SELECT table_name FROM information_schema.tables WHERE {where}")  # noqa: S608  our own names

    def highest_id(self, cluster: str) -> int:
        """The highest job id that accounting has, or had before a restore, of this cluster; 0 without one."""
        tables, sql = self.tables(), ["SELECT 0"]
        if f"{cluster}_job_table" in tables:
            sql.append(f"SELECT MAX(id_job) FROM `{cluster}_job_table` WHERE id_job < {_FIRST_UNUSABLE}")  # noqa: S608
        if MARKS in tables:
            sql.append(f"SELECT value FROM {MARKS} WHERE name = '{_JOB_IDS}'")  # noqa: S608
        return max(int(line) for line in self.ask(" UNION ".join(sql)) if line != "NULL")

    def refuse_others(self, cluster: str) -> None:
        """Raise RefusedError where another cluster has its records here: they would be of the backup's time, too."""
        if "cluster_table" in self.tables():
            others = self.ask(f"SELECT name FROM cluster_table WHERE deleted = 0 AND name <> '{cluster}'")  # noqa: S608
            if others:
                raise RefusedError(
                    f"the database at {self._storage.where} has the records of other clusters, too, which would go: "
                    f"{', '.join(others)}. Give each cluster a database of its own, or put the dump back by hand "
                    "(docs/backups.md)"
                )

    def remember(self, cluster: str) -> None:
        """Keep how high numbers have come: of jobs, and those by which jobs in the queue know their associations.

        With the numbers of the backup's time, what was made since would share them with what is made afterwards.
        """
        self.ask(f"CREATE TABLE IF NOT EXISTS {MARKS} (name VARCHAR(190) PRIMARY KEY, value BIGINT UNSIGNED NOT NULL)")
        reached = {_JOB_IDS: self.highest_id(cluster)}
        for table, column in self._numbered():
            (reached[table],) = (int(line) for line in self.ask(f"SELECT COALESCE(MAX(`{column}`), 0) FROM `{table}`"))  # noqa: S608
        rows = ", ".join(f"('{name}', {value})" for name, value in reached.items())
        self.ask(f"INSERT INTO {MARKS} VALUES {rows} ON DUPLICATE KEY UPDATE value = GREATEST(value, VALUES(value))")  # noqa: S608

    def go_on_above(self) -> None:
        """Have new records get numbers above those that are remembered."""
        known = dict(line.split("\t") for line in self.ask(f"SELECT name, value FROM {MARKS}"))  # noqa: S608
        for table, _ in self._numbered():
            self.ask(f"ALTER TABLE `{table}` AUTO_INCREMENT = {int(known.get(table, 0)) + 1}")

    def _numbered(self) -> list[tuple[str, str]]:
        """Tables whose records the database numbers, with that column."""
        where = f"table_schema = '{self._storage.database}' AND extra LIKE '%auto_increment%'"
        lines = self.ask(f"SELECT table_name, column_name FROM information_schema.columns WHERE {where}")  # noqa: S608
        return [(table, column) for table, column in (line.split("\t") for line in lines) if table not in _OWN]

    def keep_open(self, cluster: str, backup: str) -> None:
        """Keep the records of jobs that slurmctld has, and goes on with: it has handed over their beginning.

        Without them it would update records that are not there, and nobody would hear of these jobs again. Those that
        have ended since the backup are kept, too: in it they may be open, and would be for ever.
        """
        jobs, steps = (f"{cluster}_{kind}_table" for kind in _KEPT)
        if self._is_loading(jobs):  # what is there now is a backup by half; what an earlier try has kept counts
            return
        self.forget_open()
        if {jobs, steps} <= {*self.tables()}:
            since = calendar.timegm(time.strptime(backup, ID_FORMAT))
            # slurmdbd may have heard of an end late. A clock may be off; who came later is in no backup of that time.
            which = f"time_end = 0 OR (mod_time >= {since} AND time_submit <= {since + 3600})"
            for kind, table in zip(_KEPT, (jobs, steps), strict=True):
                self.ask(f"CREATE TABLE {_KEPT[kind]} LIKE `{table}`")
            self.ask(f"INSERT INTO {OPEN} SELECT * FROM `{jobs}` WHERE {which}")  # noqa: S608
            self.ask(f"INSERT INTO {OPEN_STEPS} SELECT s.* FROM `{steps}` s JOIN {OPEN} USING (job_db_inx)")  # noqa: S608

    def begin_loading(self) -> None:
        """From now on the tables are those of no moment, until `end_loading`."""
        self.ask(f"REPLACE INTO {MARKS} VALUES ('{_LOADING}', UNIX_TIMESTAMP())")  # noqa: S608

    def end_loading(self) -> None:
        """All is put back."""
        self.ask(f"DELETE FROM {MARKS} WHERE name = '{_LOADING}'")  # noqa: S608
        self.forget_open()

    def _is_loading(self, jobs: str) -> bool:
        """Not where slurmdbd has written since: somebody has started it with what is there."""
        tables = self.tables()
        begun = self.ask(f"SELECT value FROM {MARKS} WHERE name = '{_LOADING}'") if MARKS in tables else []  # noqa: S608
        if not begun or jobs not in tables:
            return bool(begun)
        return self.ask(f"SELECT 1 FROM `{jobs}` WHERE mod_time > {int(begun[0])} LIMIT 1") == []  # noqa: S608

    def put_open_back(self, cluster: str, log: Callable[[str], None]) -> None:
        """Put back what is kept, into the tables of a backup."""
        jobs, steps = (f"{cluster}_{kind}_table" for kind in _KEPT)
        if not {OPEN, OPEN_STEPS} <= {*self.tables()}:
            return
        if all(self._columns(kept) == self._columns(table) for kept, table in ((OPEN, jobs), (OPEN_STEPS, steps))):
            ended = "o.time_end > 0 AND (j.job_db_inx IS NULL OR j.time_end > 0)"
            self.ask(f"DELETE o FROM {OPEN} o LEFT JOIN `{jobs}` j USING (job_db_inx) WHERE {ended}")
            self.ask(f"DELETE s FROM `{steps}` s JOIN {OPEN} USING (job_db_inx)")
            self.ask(f"REPLACE INTO `{jobs}` ({self._listed(jobs)}) SELECT {self._listed(jobs)} FROM {OPEN}")  # noqa: S608
            columns = ", ".join(f"s.`{column}`" for column in self._columns(steps))
            kept = f"SELECT {columns} FROM {OPEN_STEPS} s JOIN {OPEN} USING (job_db_inx)"  # noqa: S608
            self.ask(f"REPLACE INTO `{steps}` ({self._listed(steps)}) {kept}")
        else:
            log("the backup is of another Slurm: records of jobs that are in the queue, and not in it, are lost")

    def forget_open(self) -> None:
        """Of a restore that was interrupted, and is done anew in another way."""
        self.ask(f"DROP TABLE IF EXISTS {OPEN}, {OPEN_STEPS}")

    def _listed(self, table: str) -> str:
        return ", ".join(f"`{column}`" for column in self._columns(table))

    def _columns(self, table: str) -> list[str]:
        where = f"table_schema = DATABASE() AND table_name = '{table}'"
        return sorted(self.ask(f"SELECT column_name FROM information_schema.columns WHERE {where}"))  # noqa: S608

    def empty(self) -> None:
        """Drop all tables of slurmdbd: those that a dump does not have would be of another time."""
        tables = ", ".join(f"`{table}`" for table in self.tables() if table not in _OWN)
        if tables:
            self.ask(f"SET FOREIGN_KEY_CHECKS = 0; DROP TABLE {tables}")


@contextmanager
def opened(log: Log) -> Iterator[Database]:
    """The database of this pod's slurmdbd.conf; the file with its password goes at the end."""
    storage = storage_of(RENDERED.read_text(encoding="utf-8"), read_password())
    install_certificates((0, 0), log)
    options = _RUN / "database.cnf"
    with os.fdopen(os.open(options, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        # mariadb-dump ends at an option that it does not know.
        known = (line for line in storage.client_options().splitlines() if not line.startswith("connect-timeout="))
        file.write("\n".join(known) + "\n")
    try:
        yield Database(storage, options)
    finally:
        options.unlink(missing_ok=True)
