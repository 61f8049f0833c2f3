"""restore STEP: puts parts of a backup back. `choose` comes first, then `state` with the database, and `jail`.

What the stack's daemons would write to is away meanwhile (cli/backup/restore.py). Each step can be done again: one that
was interrupted is mended by the same restore once more.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final

from images.backup import database, restic, state
from images.backup.backups import MOST_NAMED, chosen
from images.backup.database import Database
from images.backup.restic import CACHE, COPIES, JAIL, STAGE, STATE, Repository, environment
from images.common import terms
from images.common.log import Log
from images.common.mountinfo import expect_volume
from images.common.process import CannotGoOnError, program, required_env

_OF_FILE_SYSTEMS: Final = ("system.nfs4_acl", "security.selinux")
"""Attributes that file systems have by themselves, and refuse to have taken away or set."""

_NOT_TOLD: Final = "\ufffd"
"""In restic's list, instead of a byte that is not UTF-8."""


def choose_backup(log: Log) -> None:
    """Find the backup, which was read before anything was stopped (`backups list`)."""
    repository, parts = restic.repository(), required_env("WHAT").split()
    repository.open(make=False, log=log)
    backup = chosen(repository, parts)
    restic.hand_over(backup=backup.id, snapshots={part: backup.snapshot(part) for part in parts})
    log(f"restoring {', '.join(parts)} of backup {backup.id}")


def _snapshot(part: str) -> str | None:
    """The snapshot of a part; None if it is not asked for."""
    found: str | None = restic.read_handover()["snapshots"].get(part)
    return found


def restore_state(log: Log) -> None:
    """Put back the database, and slurmctld's state, whose job ids go on above those of accounting.

    With the database alone, slurmctld only takes the cluster's id from it.
    """
    repository, backup, snapshot = restic.handed_over(), str(restic.read_handover()["backup"]), _snapshot("state")
    expect_volume(STATE)
    highest = _restore_database(repository, backup, log) if environment("CLUSTER_NAME") else 0
    terms.return_to_one(STATE)
    if snapshot is None:
        state.take_id_of_slurmdbd(STATE)
        return
    state.put_back(STATE, partial(fetch_state, repository, snapshot), backup=backup, highest=highest, log=log)


def _restore_database(repository: Repository, backup: str, log: Log) -> int:
    """Load the dump, where it is asked for; the highest job id of accounting."""
    snapshot, cluster = _snapshot("database"), required_env("CLUSTER_NAME")
    try:
        with database.opened(database.of_slurmdbd(), log) as target:
            if snapshot is not None:
                load(target, repository, snapshot, cluster)
                log(f"the database is that of {backup}")
            return target.highest_id(cluster)
    except CannotGoOnError as error:
        if snapshot is not None:
            raise
        log(f"the next job gets an id above those of both queues, whatever accounting has: {error}")
        return 0


def load(target: Database, repository: Repository, snapshot: str, cluster: str) -> None:
    """Load a dump into a database, which is emptied first. Raises CannotGoOnError where it is not there as a whole."""
    target.refuse_others(cluster)
    target.remember(cluster)
    target.empty()
    with tempfile.TemporaryFile(dir=CACHE) as stderr:
        with subprocess.Popen(target.load, stdin=subprocess.PIPE, stderr=stderr) as reader:
            read = repository.run("dump", snapshot, database.DUMP, stdout=reader.stdin)
        stderr.seek(0)
        last = stderr.read().decode(errors="replace").strip().rpartition("\n")[2]
    if not read.ok or reader.returncode != 0:
        ended = f"mariadb ended with {reader.returncode}{last and f': {last}'}"
        what = f"the database was not restored as a whole ({ended}); restore it again"
        raise CannotGoOnError(what) if read.ok else repository.problem(what, read)
    target.go_on_above()


def fetch_state(repository: Repository, snapshot: str, target: Path) -> None:
    """The state of the backup, as slurmctld has it. Raises CannotGoOnError."""
    what = "the state of the backup cannot be read; that of the cluster was not touched"
    repository.must(what, "restore", f"{snapshot}:{STAGE}", "--target", str(target), "--quiet")
    for folder in (COPIES.name, STATE.name):
        for path in (target / folder).glob("*"):
            for each in path.iterdir() if terms.number_of(path) else (path,):
                each.rename(target / each.name)
        shutil.rmtree(target / folder, ignore_errors=True)


def restore_jail(log: Log) -> None:
    """Put the files of the backup into the jail, in which no pod is. What has come since stays beside them.

    What the stack file excludes from backups now is left alone. A single file that cannot be put back (a user may have
    made one so, or a directory in its place) is named, and keeps nothing else from it.
    """
    restic.enter_jail()
    repository = restic.handed_over(last=True)
    snapshot = str(_snapshot("jail"))
    how = ["--overwrite=always", "--sparse", "--json", "--quiet"]
    how += [argument.replace(f"={JAIL}/", "=/", 1) for argument in restic.in_jail(environment("EXCLUDE"))]
    how += [f"--exclude-xattr={name}" for name in _OF_FILE_SYSTEMS]
    taken = [path.removeprefix(str(JAIL)) for path in _taken(repository, snapshot)]
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", errors="surrogateescape", dir=CACHE) as patterns:
        patterns.writelines(f"{pattern_of(path)}\n" for path in taken)
        patterns.flush()
        how.append(f"--exclude-file={patterns.name}")
        done = repository.run("restore", f"{snapshot}:{JAIL}", "--target", str(JAIL), *how)
    failed = [
        *(f"{path[-200:]!a}: something else than a file is in its place" for path in taken),
        *restic.failed_files(done),
    ]
    if not restic.is_done_but_for_files(done):
        raise repository.problem("the jail was not restored as a whole; restore it again", done)
    for line in failed[:MOST_NAMED]:
        log(f"not put back ({len(failed)} in all): {line}")
    found = json.loads(done.stdout.splitlines()[-1])
    log(f"the jail has {found.get('total_files', 0)} files and directories of {restic.read_handover()['backup']}")


def _taken(repository: Repository, snapshot: str) -> Iterator[str]:
    """Files of the backup in whose place there is a directory, or a FIFO or the like.

    restic would give the directory the file's owner and mode, and wait at a FIFO for ever.
    """
    unsure = set()
    for node in map(json.loads, repository.listed(snapshot, JAIL)):
        if node.get("type") == "file" and _NOT_TOLD in node["path"]:
            unsure.add(node["path"])
        elif node.get("type") == "file" and _is_other(node["path"]):
            yield node["path"]
    for folder, *names in os.walk(JAIL) if unsure else ():
        for path in (f"{folder}/{name}" for name in chain(*names)):
            if re.sub("[\udc80-\udcff]", _NOT_TOLD, path) in unsure and _is_other(path):
                yield path


def _is_other(path: str) -> bool:
    """Whether there is something that is neither a file nor a link."""
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISLNK(mode))


def pattern_of(path: str) -> str:
    """A line of restic's file of patterns that this path is like.

    The file cannot have a line's end in a name, and restic takes away what is white at a line's end.
    """
    escaped = re.sub(r"([*?\[\\])", r"\\\1", path).replace("$", "$$")
    return re.sub(r"\s", lambda white: "[\x01- ]" if white[0] == "\n" else f"[{white[0]}]", escaped)


STEPS: Final = {"choose": choose_backup, "state": restore_state, "jail": restore_jail}


def main() -> None:
    """Entry point."""
    with program("restore") as log:
        STEPS[sys.argv[1]](log)
