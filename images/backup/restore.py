"""restore STEP: puts parts of a backup back. `choose` comes first, then `look`, `database`, `state`, `jail`.

What the stack's daemons would write to is away meanwhile (cli/backup/restore.py). Each step can be done again: one that
was interrupted is mended by the same restore once more.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from images.backup import database, rehearsal, settings, state
from images.backup.backups import ID_FORMAT, backups_of, choose
from images.backup.identity import Clusters
from images.backup.restic import CACHE, Repository, only_single_files, unreadable
from images.backup.settings import COPIES, JAIL, NEVER, STAGE, STATE, Settings
from images.backup.tidy import Spared, Tidy
from images.common import terms
from images.common.jail_roots import ROOTS
from images.common.log import Log
from images.common.mountinfo import expect_volume
from images.common.process import CannotGoOnError, RefusedError, program, required_env

RESTORABLE = ("state", "database", "jail")

MOST_NAMED = 5
"""Files that could not be put back, in a message."""

_OF_FILE_SYSTEMS = ("system.nfs4_acl", "security.selinux")
"""Attributes that file systems have by themselves, and refuse to have taken away or set."""


def choose_backup(log: Log) -> None:
    """Find the backup, and see that what is not large can be read as a whole, before anything is touched."""
    parts = required_env("WHAT").split()
    unknown = sorted(set(parts) - set(RESTORABLE))
    if unknown:
        raise RefusedError(f"{unknown[0]!r} cannot be restored: {', '.join(RESTORABLE)}")
    repository = settings.begin(Settings.read(), what=parts, highest=0)
    repository.open(make=False, log=log)
    now = time.strftime(ID_FORMAT, time.gmtime())
    backups = backups_of(repository.snapshots())
    is_same = Clusters(repository, backups, log).is_same
    backup = choose(backups, settings.environment("AT"), parts, now=now, is_same=is_same)
    if "database" in parts:
        read, _ = repository.pipe(backup.snapshots["database"], database.DUMP, None)
        if not read.ok:
            raise repository.problem(f"the database in backup {backup.id} cannot be read; nothing was touched", read)
    left = [path.removeprefix(str(JAIL)) for path in backup.excluded if not path.endswith("/*")]
    settings.tell(backup=backup.id, snapshots=dict(backup.snapshots), left=left, largest=backup.largest)
    log(f"restoring {', '.join(parts)} of backup {backup.id}")


def _snapshot(part: str, log: Log) -> str | None:
    """The snapshot of a part; None if it is not asked for."""
    told = settings.told()
    if part not in told["what"]:
        log(f"{part}: not asked for")
        return None
    return str(told["snapshots"][part])


def look_at_state(log: Log) -> None:
    """See whether the state would be refused, before the database, which comes first, is replaced."""
    repository = settings.go_on(Settings.read())
    expect_volume(STATE)
    if _snapshot("state", log) is not None:
        with tempfile.TemporaryDirectory(dir=CACHE) as directory:
            _fetch_state(repository, Path(directory))
            state.refuse_newer(terms.current(STATE) or STATE, Path(directory), str(settings.told()["backup"]))


def restore_database(log: Log) -> None:
    """Load the dump into an empty database. With the state alone, that only learns the highest job id."""
    repository = settings.go_on(Settings.read())
    snapshot, cluster = _snapshot("database", log), required_env("CLUSTER_NAME")
    try:
        with database.opened(log) as target:
            if snapshot is not None:
                _load(target, repository, snapshot, cluster, log)
                log(f"the database is that of {settings.told()['backup']}")
                if rehearsal.is_asked_for():
                    rehearsal.tell("database", **rehearsal.records_of(target, cluster))
            settings.tell(highest=target.highest_id(cluster))
    except CannotGoOnError as error:
        if snapshot is not None:
            raise
        log(f"the next job gets an id above those of both queues, whatever accounting has: {error}")


def _load(target: database.Database, repository: Repository, snapshot: str, cluster: str, log: Log) -> None:
    told = settings.told()
    target.refuse_others(cluster)
    target.remember(cluster)
    if "state" in told["what"]:
        target.forget_open()
    else:
        target.keep_open(cluster, str(told["backup"]))
    target.begin_loading()
    target.empty()
    read, code = repository.pipe(snapshot, database.DUMP, target.load)
    if not read.ok:
        raise repository.problem("the database was not restored as a whole; restore it again", read)
    if code != 0:
        raise CannotGoOnError(f"the database was not restored as a whole: mariadb ended with {code}, as above")
    target.put_open_back(cluster, log)
    target.go_on_above()
    target.end_loading()


def _fetch_state(repository: Repository, target: Path) -> None:
    """The state of the backup, as slurmctld has it. Raises CannotGoOnError."""
    told = settings.told()
    done = repository.run("restore", f"{told['snapshots']['state']}:{STAGE}", "--target", str(target), "--quiet")
    if not done.ok:
        raise repository.problem(f"the state in backup {told['backup']} cannot be read; it was not touched", done)
    for folder in (COPIES.name, STATE.name):
        for path in (target / folder).glob("*"):
            for each in path.iterdir() if terms.number_of(path) else (path,):
                each.rename(target / each.name)
        shutil.rmtree(target / folder, ignore_errors=True)


def restore_state(log: Log) -> None:
    """Put slurmctld's state back; with the database alone, slurmctld only takes the cluster's id from it."""
    repository = settings.go_on(Settings.read())
    expect_volume(STATE)
    terms.return_to_one(STATE)
    snapshot = _snapshot("state", log)
    if snapshot is None:
        state.take_id_of_slurmdbd(STATE)
        return
    told = settings.told()
    fetch = partial(_fetch_state, repository)
    state.put_back(STATE, fetch, backup=str(told["backup"]), highest=int(told["highest"]), log=log)
    if rehearsal.is_asked_for():
        rehearsal.tell("state", **rehearsal.queue_of(STATE))


def restore_jail(log: Log) -> None:
    """Bring the jail to what it was: what has come since goes. No pod that leads into it runs.

    A single file that cannot be put back (a user may have made one so) is named, and keeps nothing else from it.
    """
    settings.enter_jail()
    repository = settings.go_on(Settings.read(), last=True)
    snapshot = _snapshot("jail", log)
    if snapshot is None:
        return
    told, excluded = settings.told(), settings.environment("EXCLUDE")
    largest = [int(required_env("LARGEST_FILE")), *([told["largest"]] if told["largest"] is not None else [])]
    spared = Spared(
        paths=settings.of_roots((*json.loads(excluded or "[]"), *told["left"])),
        # A root that has come since the backup stays: pods may lead into it.
        contents=settings.of_roots(f"/{path}" for path in NEVER) | {f"/{ROOTS}"},
        largest=min(largest),
    )
    tidy = Tidy(spared, log)
    tidy.run(repository.listed(snapshot, JAIL), JAIL)
    how = ["--overwrite=always", "--sparse", "--json", "--quiet"]
    how += [argument.replace(f"={JAIL}/", "=/", 1) for argument in settings.in_jail(excluded)]
    how += [f"--exclude-xattr={name}" for name in _OF_FILE_SYSTEMS]
    how += ["--verify"] if rehearsal.is_asked_for() else []
    done = repository.run("restore", f"{snapshot}:{JAIL}", "--target", str(JAIL), *how)
    failed = unreadable(done)
    if not done.ok and not only_single_files(done, failed):
        raise repository.problem("the jail was not restored as a whole; restore it again", done)
    for line in failed[:MOST_NAMED]:
        log(f"not put back: {line}")
    more = f", and {len(failed)} files were not put back" if failed else ""
    log(f"the jail is that of {told['backup']}: {tidy.gone} files and directories that have come since are gone{more}")
    if rehearsal.is_asked_for():
        found = rehearsal.compare_jail(repository.listed(snapshot, JAIL), JAIL, unrestored=len(failed))
        rehearsal.tell("jail", **found)


STEPS = {
    "choose": choose_backup, "look": look_at_state, "database": restore_database, "state": restore_state,
    "jail": restore_jail,
}  # fmt: skip


def main() -> None:
    """Entry point."""
    with program("restore") as log:
        step = sys.argv[1] if len(sys.argv) > 1 else ""
        if step not in STEPS:
            raise CannotGoOnError(f"{step!r} is no step: {', '.join(STEPS)}")
        STEPS[step](log)
