"""What a backup is: snapshots of restic, one for each part, that carry the same id. And of which cluster it is.

A cluster is known by its keys: a rotation changes one of them, and the others stay. Snapshots have a print of each in a
tag.

backup state|jail saves: first keys, slurmctld's state and the database, then the jail. State before database: a job
that has started in between then waits again after a restore and has a record too many. The other way round it would run
without one. backups list|verify: what there is, as JSON in the last line, and whether it can be read.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from images.backup import database, restic, state
from images.backup.restic import COPIES, HANDOVER, JAIL, KEYS, STAGE, STATE, Repository, environment
from images.common import terms
from images.common.command import run
from images.common.log import Log
from images.common.mountinfo import expect_volume
from images.common.process import CannotGoOnError, RefusedError, program, required_env

ID_FORMAT: Final = "%Y%m%dT%H%M%SZ"
_ID: Final = re.compile(r"\d{8}T\d{6}Z")

_MOMENTS: Final = {"%Y-%m-%dT%H:%M": timedelta(seconds=59), "%Y-%m-%d": timedelta(seconds=86_399)}
"""Form of a time -> until its end: a schedule for 02:00 begins some seconds later."""

BEFORE_RESTORE: Final = "before-restore"
"""Kind of a backup of what a restore replaces. No retention takes it away."""

BEFORE_UPGRADE: Final = "before-upgrade"
"""Kind of one that `slurmstack up` makes before Slurm gets another release. No retention takes it away either."""

MANUAL: Final = "manual"
"""Kind of one that a person has asked for: it may make the repository, and begin with another cluster in it."""

_SPANS: Final = {"last": ID_FORMAT, "daily": "%Y%m%d", "weekly": "%G%V", "monthly": "%Y%m"}
"""What the stack file's `keep` counts -> what backups have in common of which only the last one is kept."""

SAVED_KEYS: Final = HANDOVER / "keys"
"""Where the keys lie when they are saved, and so in the snapshot."""

MOST_NAMED: Final = 5
"""Files that could not be read or put back, by name."""


@dataclass(frozen=True, kw_only=True)
class Backup:
    """All snapshots with one id, which is the moment of its begin (UTC)."""

    id: str
    kind: str
    wanted: frozenset[str]
    """Parts that it was to have."""
    cluster: frozenset[str]
    """Prints of the keys of its cluster (`prints_of`)."""
    parts: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Part -> its snapshot, and bytes that were looked at."""

    @property
    def complete(self) -> bool:
        """Whether all of its parts are there."""
        return self.wanted <= self.parts.keys()

    @property
    def time(self) -> datetime:
        """When it was begun."""
        return datetime.strptime(self.id, ID_FORMAT).replace(tzinfo=UTC)

    def snapshot(self, part: str) -> str:
        """That of a part which it has."""
        return str(self.parts[part]["snapshot"])

    def as_data(self) -> dict[str, Any]:
        """For JSON."""
        known = {"id": self.id, "time": self.time.isoformat(), "kind": self.kind}
        return {**known, "complete": self.complete, "parts": self.parts}


def tags(backup: str, part: str, **more: str) -> list[str]:
    """Arguments of `restic backup`, by which `backups_of` finds it again. `more`: kind, parts and cluster, with +."""
    found = (restic.TAG, f"backup={backup}", f"part={part}", *(f"{key}={value}" for key, value in more.items()))
    return [argument for tag in found for argument in ("--tag", tag)]


def backups_of(snapshots: Iterable[Mapping[str, Any]]) -> list[Backup]:
    """The backups, oldest first. A part that was tried twice counts as its last try."""
    found: dict[str, Backup] = {}
    for snapshot in snapshots:
        tags = dict(tag.split("=", 1) for tag in snapshot.get("tags") or () if "=" in tag)
        if not _ID.fullmatch(tags.get("backup", "")) or "part" not in tags:
            continue
        wanted, cluster = (frozenset(tags.get(key, "").split("+")) for key in ("parts", "cluster"))
        first = Backup(id=tags["backup"], kind=tags.get("kind", ""), wanted=wanted, cluster=cluster)
        size = (snapshot.get("summary") or {}).get("total_bytes_processed", 0)
        parts = found.setdefault(first.id, first).parts
        parts[tags["part"]] = {"snapshot": str(snapshot["id"]), "bytes": int(size)}
    return [found[backup] for backup in sorted(found)]


def superfluous(backups: Iterable[Backup], keep: Mapping[str, int]) -> list[str]:
    """Snapshots of backups that nobody keeps, all parts of one together. `keep`: as in the stack file.

    Those that lack a part go with the next one that has all: else they would count instead of it.
    """
    counted = [item for item in reversed(list(backups)) if item.kind not in {BEFORE_RESTORE, BEFORE_UPGRADE}]
    complete = [backup for backup in counted if backup.complete]
    kept: set[str] = set()
    for span, number in keep.items():
        last: dict[str, str] = {}
        for backup in complete:
            last.setdefault(backup.time.strftime(_SPANS[span]), backup.id)
        kept |= set([*last.values()][:number])
    newest = complete[0].id if complete else ""
    expired = [backup for backup in counted if backup.id < newest and backup.id not in kept]
    return [backup.snapshot(part) for backup in expired for part in backup.parts]


def refuse_another_cluster(backups: Sequence[Backup], cluster: Iterable[str], url: str) -> None:
    """Raise RefusedError where the last backup is of another cluster, or of this one before it was made anew.

    A new, empty cluster of the same stack file would put its emptiness in the place of what is to be restored.
    """
    if backups and backups[-1].cluster.isdisjoint(cluster):
        raise RefusedError(
            f"the last backup in {url}, {backups[-1].id}, is of another cluster, or of this one before it was made "
            "anew: they have no key in common. `slurmstack backup now` begins to save this cluster after it, as it is "
            "now; a second cluster needs a backup.prefix of its own. Only where this one is new and empty: `slurmstack "
            "restore` puts that backup in the place of what is here"
        )


def choose(backups: Iterable[Backup], at: str, parts: Sequence[str], *, now: str) -> Backup:
    """The last backup up to a moment that has all of these parts. Raises RefusedError.

    `at`: empty for the last one of all but those that a restore has made, an id for no other than that one, or a time
    in UTC, up to the end of that minute or day. `now`: id of this moment; what is later was made by a clock that is
    wrong.
    """
    found = [backup for backup in backups if set(parts) <= backup.parts.keys()]
    if _ID.fullmatch(at):
        found = [backup for backup in found if backup.id == at]
    else:
        limit = min(_moment(at), now) if at else now
        found = [backup for backup in found if backup.id <= limit and backup.kind != BEFORE_RESTORE]
    if not found:
        raise RefusedError(
            f"there is no backup with {' and '.join(parts)}{f' for --at {at}' if at else ''}; `slurmstack backup list` "
            "shows what there is"
        )
    return found[-1]


def _moment(text: str) -> str:
    for form, rest in _MOMENTS.items():
        with suppress(ValueError):
            return (datetime.strptime(text, form).replace(tzinfo=UTC) + rest).strftime(ID_FORMAT)
    raise RefusedError(
        f"{text!r} is no time: write 2026-11-26T02:00 (UTC), 2026-11-26 for the last of that day, or a backup's id"
    )


def chosen(repository: Repository, parts: Sequence[str]) -> Backup:
    """The one that is asked for by `AT`. Raises RefusedError."""
    now = time.strftime(ID_FORMAT, time.gmtime())
    return choose(backups_of(repository.snapshots()), environment("AT"), parts, now=now)


def readable(repository: Repository, parts: Sequence[str], *, and_jail: bool = False) -> Backup:
    """The same, when all of it but the content of the jail's files was read, and slurmctld here would read the state.

    `and_jail`: where the backup has one. Raises CannotGoOnError.
    """
    backup = chosen(repository, parts)
    unreadable = f"backup {backup.id} cannot be read; nothing was touched"
    for part, path in (("state", STAGE), ("database", database.DUMP)):
        if part in parts:
            read = repository.run("dump", backup.snapshot(part), str(path), stdout=subprocess.DEVNULL)
            if not read.ok:
                raise repository.problem(unreadable, read)
    if "state" in parts:
        with tempfile.NamedTemporaryFile(dir=restic.CACHE) as jobs:  # empty where there is none
            repository.run("dump", backup.snapshot("state"), str(COPIES / state.JOBS), stdout=jobs)
            state.refuse_unreadable(Path(jobs.name), backup.id, run(["/usr/sbin/slurmctld", "-V"]).stdout)
    # A directory that cannot be read would be put back as an empty one.
    if "jail" in parts or (and_jail and "jail" in backup.parts):
        repository.must(unreadable, "stats", "--quiet", backup.snapshot("jail"))
    return backup


def key_files(keys: Path) -> list[Path]:
    """Those of Secrets: in their volumes they are links, beside others to directories."""
    return [file for file in sorted(keys.glob("*/*")) if file.is_file() and not file.name.startswith("..")]


def prints_of(keys: Path) -> list[str]:
    """One of each key: clusters that have one in common are the same."""
    return sorted({sha256(content).hexdigest()[:12] for file in key_files(keys) if (content := file.read_bytes())})


# --- What there is ----------------------------------------------------------------------------------------------------


def list_backups(log: Log) -> None:
    """Print all backups as one line of JSON; with `WHAT`, only the one that a restore of these would take."""
    repository = restic.repository()
    repository.open(make=False, log=log)
    parts = environment("WHAT").split()
    found = [readable(repository, parts)] if parts else backups_of(repository.snapshots())
    print(json.dumps([backup.as_data() for backup in found]))


def verify(log: Log) -> None:
    """Check that the repository is whole, and read a share of its content (`READ`: `5%`, or `all`)."""
    repository = restic.repository()
    repository.open(make=False, log=log)
    share = environment("READ", "5%")
    read = "--read-data" if share == "all" else f"--read-data-subset={share}"
    done = repository.run("check", "--quiet", read)
    what = f"the repository {repository.url} is damaged, or cannot be read (docs/restore.md)"
    if done.code == 1:  # what to do is among its last words
        raise RefusedError(f"{what}: {' '.join(done.stderr.split())[-1000:]}")
    if not done.ok:
        raise repository.problem(what, done)
    log(f"the repository is whole; read: {share}")


# --- Saving -----------------------------------------------------------------------------------------------------------


class Saving:
    """Snapshots of one backup."""

    def __init__(self, repository: Repository, log: Log) -> None:
        handover = restic.read_handover()
        self.id, self.kind = str(handover["id"]), str(handover["kind"])
        self._marks = {"kind": self.kind, "parts": "+".join(handover["parts"]), "cluster": str(handover["cluster"])}
        self._repository, self._log = repository, log

    def snapshot(self, part: str, *what: str) -> str:
        """Make one snapshot; its id. What cannot be read of the jail is named, and left out. Raises CannotGoOnError."""
        moment = time.strftime("%Y-%m-%d %H:%M:%S", time.strptime(self.id, ID_FORMAT))
        started = time.monotonic()
        how = ["--json", "--quiet", "--host", restic.HOST, "--time", moment]
        done = self._repository.run("backup", *how, *tags(self.id, part, **self._marks), *what)
        if not done.ok and done.code != restic.INCOMPLETE:
            raise self._repository.problem(f"{part} could not be saved", done)
        made = str(json.loads(done.stdout.splitlines()[-1])["snapshot_id"])
        unread = restic.failed_files(done)
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
        expired = superfluous(backups_of(self._repository.snapshots()), wanted)
        done = self._repository.run("forget", "--quiet", "--prune", *expired) if expired else None
        if done is not None and not done.ok:  # the backup is there, and the next one tries again
            self._log.failure(f"old backups could not be removed: {restic.last_words(done)}")


def save_state(log: Log) -> None:
    """The first container: opens the repository, and saves all but the jail."""
    expect_volume(STATE)
    begun = time.strftime(ID_FORMAT, time.gmtime())
    parts, kind = ["keys", *environment("PARTS", "state jail").split()], environment("KIND", "scheduled")
    repository = restic.repository()
    # By itself it begins nothing: a repository that somebody has taken away would be made anew without a word.
    repository.open(make=kind == MANUAL, log=log)
    cluster = prints_of(KEYS)
    if kind == "scheduled":
        refuse_another_cluster(backups_of(repository.snapshots()), cluster, repository.url)
    restic.hand_over(id=begun, parts=parts, kind=kind, cluster="+".join(cluster))
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
            raise CannotGoOnError("slurmctld started meanwhile and moved its state; make a backup anew")


def save_jail(log: Log) -> None:
    """The last: the longest, and the one that users can hold up. What is too old goes afterwards."""
    restic.enter_jail()
    saving = Saving(restic.handed_over(last=True), log)
    left = restic.in_jail(environment("EXCLUDE"))
    saving.snapshot("jail", *left, f"--exclude-larger-than={required_env('LARGEST_FILE')}", str(JAIL))
    keep = environment("KEEP")
    if keep and saving.kind != BEFORE_RESTORE:
        saving.forget(keep)


STEPS: Final = {"list": list_backups, "verify": verify, "state": save_state, "jail": save_jail}


def main() -> None:
    """Entry point of both programs."""
    name = Path(sys.argv[0]).name
    with program(name) as log:
        STEPS[sys.argv[1]](log)
