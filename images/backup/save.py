"""backup STEP: saves parts of the cluster. `state` comes first, with the keys and the database, and `jail` last.

State before database: a job that has started in between then waits again after a restore and has a record too many. The
other way round it would run without one.
"""

from __future__ import annotations

import json
import shutil
import sys
import time

from images.backup import database, settings, state
from images.backup.backups import (
    BEFORE_RESTORE,
    ID_FORMAT,
    MANUAL,
    SAVED_KEYS,
    backups_of,
    key_files,
    prints_of,
    refuse_another_cluster,
    superfluous,
    tags,
)
from images.backup.restic import HOST, INCOMPLETE, Repository, failed_files, last_words
from images.backup.settings import COPIES, JAIL, KEYS, STATE
from images.common import terms
from images.common.log import Log
from images.common.mountinfo import expect_volume
from images.common.process import CannotGoOnError, program, required_env

MOST_NAMED = 5
"""Files that could not be read, in a message."""


class Saving:
    """Snapshots of one backup."""

    def __init__(self, repository: Repository, log: Log) -> None:
        told = settings.told()
        self.id = str(told["id"])
        self.kind = str(told["kind"])
        self._marks = {"kind": self.kind, "parts": "+".join(told["parts"]), "cluster": str(told["cluster"])}
        self._repository = repository
        self._log = log

    def snapshot(self, part: str, *what: str) -> str:
        """Make one snapshot; its id. What cannot be read of the jail is named, and left out. Raises CannotGoOnError."""
        moment = time.strftime("%Y-%m-%d %H:%M:%S", time.strptime(self.id, ID_FORMAT))
        started = time.monotonic()
        how = ["--json", "--quiet", "--host", HOST, "--time", moment]
        done = self._repository.run("backup", *how, *tags(self.id, part, **self._marks), *what)
        if not done.ok and done.code != INCOMPLETE:
            raise self._repository.problem(f"{part} could not be saved", done)
        made = str(json.loads(done.stdout.splitlines()[-1])["snapshot_id"])
        unread = failed_files(done)
        if unread and part != "jail":
            self.take_back(part, made)
            raise self._repository.problem(f"{part} could not be saved", done)
        for line in unread[:MOST_NAMED]:
            self._log(f"not read ({len(unread)} in all): {line}")
        self._log(f"{part} is saved in backup {self.id} ({time.monotonic() - started:.0f} s)")
        return made

    def take_back(self, part: str, snapshot: str) -> None:
        """Remove a part that was saved by half: a restore would take it. Raises CannotGoOnError."""
        self._repository.must(f"{part} was saved by half, and cannot be removed", "forget", "--quiet", snapshot)

    def forget(self, keep: str) -> None:
        """Remove backups that are beyond the stack file's `keep` (`last=3 daily=7`), and what only they needed."""
        wanted = {span: int(number) for span, _, number in (part.partition("=") for part in keep.split())}
        gone = superfluous(backups_of(self._repository.snapshots()), wanted)
        done = self._repository.run("forget", "--quiet", "--prune", *gone) if gone else None
        if done is not None and not done.ok:  # the backup is there, and the next one tries again
            self._log.failure(f"old backups could not be removed: {last_words(done)}")


def save_state(log: Log) -> None:
    """The first container: opens the repository, and saves all but the jail."""
    expect_volume(STATE)
    begun = time.strftime(ID_FORMAT, time.gmtime())
    parts = ["keys", *settings.environment("PARTS", "state jail").split()]
    kind = settings.environment("KIND", "scheduled")
    repository = settings.repository()
    # By itself it begins nothing: a repository that somebody has taken away would be made anew without a word.
    repository.open(make=kind == MANUAL, log=log)
    cluster = prints_of(KEYS)
    if kind == "scheduled":
        refuse_another_cluster(backups_of(repository.snapshots()), cluster, repository.url)
    settings.hand_over(id=begun, parts=parts, kind=kind, cluster="+".join(cluster))
    log(f"backup {begun}: {', '.join(parts)}")
    saving = Saving(repository, log)
    take_state(saving, log)
    try:
        for source in key_files(KEYS):
            copy = SAVED_KEYS / source.parent.name / source.name
            copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            copy.write_bytes(source.read_bytes())
        saving.snapshot("keys", str(SAVED_KEYS))
    finally:
        shutil.rmtree(SAVED_KEYS, ignore_errors=True)
    if "database" in parts:  # the dump goes from the one program to the other, and lies nowhere
        with database.opened(database.of_slurmdbd(), log) as records:
            name = ["--stdin-filename", database.DUMP, "--stdin-from-command", "--", *records.dump]
            saving.snapshot("database", *name)


def take_state(saving: Saving, log: Log) -> None:
    """Save the state directory. Raises CannotGoOnError, also where it has another name by now.

    Then there may be nothing, or a part, in the snapshot.
    """
    directory = terms.current(STATE) or STATE
    shutil.rmtree(COPIES, ignore_errors=True)
    try:
        if state.JOBS not in state.take(directory, COPIES):
            log("slurmctld has saved no jobs yet")
        scripts = [str(path) for path in directory.iterdir() if state.SCRIPTS.fullmatch(path.name)]
        snapshot = saving.snapshot("state", str(COPIES), *scripts)
        if not directory.exists():
            saving.take_back("state", snapshot)
    finally:
        if not directory.exists():
            raise CannotGoOnError("another controller has taken the state over meanwhile; make a backup anew")


def save_jail(log: Log) -> None:
    """The last: the longest, and the one that users can hold up. What is too old goes afterwards."""
    settings.enter_jail()
    repository = settings.handed_over(last=True)
    saving = Saving(repository, log)
    left = settings.in_jail(settings.environment("EXCLUDE"))
    saving.snapshot("jail", *left, f"--exclude-larger-than={required_env('LARGEST_FILE')}", str(JAIL))
    keep = settings.environment("KEEP")
    if keep and saving.kind != BEFORE_RESTORE:
        saving.forget(keep)


STEPS = {"state": save_state, "jail": save_jail}


def main() -> None:
    """Entry point."""
    with program("backup") as log:
        STEPS[sys.argv[1]](log)
