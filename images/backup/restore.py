"""Puts parts of a backup back: `restore-state` the database and the state, then `restore-jail`.

No daemon runs meanwhile (cli/backup/restore.py), and the backup, `AT`, was read before. Each step can be done again:
one that was interrupted is mended by the same restore once more.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from functools import partial
from pathlib import Path
from typing import Final

from images.backup import database, restic, state
from images.backup.backups import MOST_NAMED, Backup, chosen
from images.backup.database import Database
from images.backup.restic import CACHE, COPIES, JAIL, STAGE, STATE
from images.common import terms
from images.common.command import Result
from images.common.log import Log
from images.common.mountinfo import expect_volume
from images.common.process import CannotGoOnError, required_env

_OF_FILE_SYSTEMS: Final = ("system.nfs4_acl", "security.selinux")
"""Attributes that file systems have by themselves, and refuse to have taken away or set."""

_FULL: Final = re.compile(r"(?!.*xattr\.).*: (no space left on device|read-only file system)[\"']$")
"""A volume that takes nothing more. Attributes of one file may have no room, whatever its volume has."""


def restore_state(log: Log) -> None:
    """Put back the database, and slurmctld's state, whose job ids go on above those of accounting.

    With the database alone, slurmctld only takes the cluster's id from it.
    """
    parts = required_env("WHAT").split()
    backup = chosen(parts)
    log(f"restoring {', '.join(parts)} of backup {backup.id}")
    expect_volume(STATE)
    highest = _restore_database(backup, log, wanted="database" in parts) if os.environ.get("CLUSTER_NAME") else 0
    terms.return_to_one(STATE)
    if "state" in parts:
        fetch = partial(fetch_state, backup.snapshot("state"))
        state.put_back(STATE, fetch, backup=backup.id, highest=highest, log=log)
    else:
        state.take_id_of_slurmdbd(STATE)


def _restore_database(backup: Backup, log: Log, *, wanted: bool) -> int:
    """Load the dump, where it is asked for; the highest job id of accounting."""
    cluster = required_env("CLUSTER_NAME")
    try:
        with database.opened(database.of_slurmdbd(), log) as target:
            if wanted:
                load(target, backup.snapshot("database"), cluster)
                log(f"the database is that of {backup.id}")
            return target.highest_id(cluster)
    except CannotGoOnError as error:
        if wanted:
            raise
        log(f"the next job gets an id above those of both queues, whatever accounting has: {error}")
        return 0


def load(target: Database, snapshot: str, cluster: str) -> None:
    """Load a dump into a database, which is emptied first. Raises CannotGoOnError where it is not there as a whole."""
    target.refuse_others(cluster)
    target.remember(cluster)
    target.empty()
    with tempfile.TemporaryFile(dir=CACHE) as stderr:
        with subprocess.Popen(target.load, stdin=subprocess.PIPE, stderr=stderr) as reader:
            read = restic.call("dump", snapshot, database.DUMP, stdout=reader.stdin)
        stderr.seek(0)
        last = stderr.read().decode(errors="replace").strip().rpartition("\n")[2]
    if not read.ok or reader.returncode != 0:
        why = f"mariadb ended with {reader.returncode}: {last}" if read.ok else restic.last_words(read)
        raise CannotGoOnError(f"the database was not restored as a whole; restore it again: {why}")
    target.go_on_above()


def fetch_state(snapshot: str, target: Path) -> None:
    """The state of the backup, as slurmctld has it. Raises CannotGoOnError."""
    what = "the state of the backup cannot be read; that of the cluster was not touched"
    restic.must(what, "restore", f"{snapshot}:{STAGE}", "--target", str(target), "--quiet")
    for folder in (COPIES.name, STATE.name):
        for path in (target / folder).glob("*"):
            for each in path.iterdir() if terms.number_of(path) else (path,):
                each.rename(target / each.name)
        shutil.rmtree(target / folder, ignore_errors=True)


def restore_jail(log: Log) -> None:
    """Put the files of the backup into the jail, in which no pod is. What has come since stays beside them.

    What the stack file excludes from backups now is left alone. A single file that cannot be put back (a directory is
    in its place now) is named, and keeps nothing else from it. restic would wait for ever at a FIFO that is in a file's
    place, so FIFOs go; those of the backup come back.
    """
    restic.enter_jail()
    backup = chosen(["jail"])
    subprocess.run(["find", str(JAIL), "-type", "p", "-delete"], check=False)
    how = ["--overwrite=always", "--sparse", "--json", "--quiet", *restic.in_jail(below="")]
    how += [f"--exclude-xattr={name}" for name in _OF_FILE_SYSTEMS]
    done = restic.call("restore", f"{backup.snapshot('jail')}:{JAIL}", "--target", str(JAIL), *how)
    if not is_done_but_for_files(done):
        raise CannotGoOnError(f"the jail was not restored as a whole; restore it again: {restic.last_words(done)}")
    failed = restic.failed_files(done)
    for line in failed[:MOST_NAMED]:
        log(f"not put back ({len(failed)} in all): {line}")
    found = json.loads(done.stdout.splitlines()[-1])
    log(f"the jail has {found.get('total_files', 0)} files and directories of {backup.id}")


def is_done_but_for_files(done: Result) -> bool:
    """Whether a restore has gone to its end, but for single files that it names."""
    single = re.search(r"There were \d+ errors", restic.last_words(done).rpartition(" | ")[2])
    return done.ok or (bool(single) and not any(map(_FULL.match, restic.failed_files(done))))
