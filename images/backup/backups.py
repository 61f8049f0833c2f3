"""What a backup is: snapshots of restic, one for each part, that carry the same id. And of which cluster it is.

A cluster is known by its keys: a rotation changes one of them, and the others stay. Snapshots have a print of each in a
tag.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from images.backup import database, restic, state
from images.backup.restic import COPIES, JAIL, KEYS, STACK_FILE, STAGE, STATE
from images.common import terms
from images.common.command import run
from images.common.log import Log
from images.common.mountinfo import expect_volume
from images.common.process import CannotGoOnError, RefusedError, required_env

ID_FORMAT: Final = "%Y%m%dT%H%M%SZ"
_AT: Final = re.compile(r"\d{8}(T\d{4}(\d\dZ)?)?")
"""An id, or the begin of one: a minute, a day."""

KINDS: Final = ("scheduled", "manual")
"""Kinds that retention counts. What `slurmstack restore` and `up` save first (`before-restore`, `before-upgrade`) stays
until a person removes it. `manual` may make the repository, and begin with another cluster in it."""

BEFORE_RESTORE: Final = "before-restore"
MOST_NAMED: Final = 5
"""Files that could not be read or put back, by name."""

_MADE: Final = restic.CACHE / "backup.json"
"""Marks of the backup that the first container of a pod has begun, for the second."""


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

    def snapshot(self, part: str) -> str:
        """That of a part which it has."""
        return str(self.parts[part]["snapshot"])

    def as_data(self) -> dict[str, Any]:
        """For JSON."""
        moment = datetime.strptime(self.id, ID_FORMAT).replace(tzinfo=UTC).isoformat()
        complete = self.wanted <= self.parts.keys()
        return {"id": self.id, "time": moment, "kind": self.kind, "complete": complete, "parts": self.parts}


def backups_of(snapshots: Iterable[Mapping[str, Any]]) -> list[Backup]:
    """The backups, oldest first. A part that was tried twice counts as its last try."""
    found: dict[str, Backup] = {}
    for snapshot in snapshots:
        tags = dict(tag.split("=", 1) for tag in snapshot.get("tags") or () if "=" in tag)
        if not {"backup", "part"} <= tags.keys():
            continue
        wanted, cluster = (frozenset(tags.get(key, "").split("+")) for key in ("parts", "cluster"))
        first = Backup(id=tags["backup"], kind=tags.get("kind", ""), wanted=wanted, cluster=cluster)
        size = (snapshot.get("summary") or {}).get("total_bytes_processed", 0)
        found.setdefault(first.id, first).parts[tags["part"]] = {"snapshot": str(snapshot["id"]), "bytes": int(size)}
    return [found[backup] for backup in sorted(found)]


def existing() -> list[Backup]:
    """All of the repository. Raises CannotGoOnError."""
    return backups_of(
        json.loads(restic.must("the backups cannot be listed", "snapshots", "--json", "--tag", restic.TAG))
    )


def choose(backups: Iterable[Backup], at: str, parts: Sequence[str], *, now: str) -> Backup:
    """The last backup up to a moment that has all of these parts. Raises RefusedError.

    `at`: empty for the last one of all but those that a restore has made, an id for no other than that one, or a time
    in UTC, up to the end of that minute or day. `now`: id of this moment; what is later was made by a clock that is
    wrong.
    """
    limit = re.sub("[-:]", "", at)
    try:
        known = not at or bool(_AT.fullmatch(limit) and datetime.fromisoformat(at))
    except ValueError:
        known = False
    if not known:
        raise RefusedError(
            f"{at!r} is no time: write 2026-11-26T02:00 (UTC), 2026-11-26 for the last of that day, or a backup's id"
        )
    found = [backup for backup in backups if set(parts) <= backup.parts.keys()]
    if limit.endswith("Z"):
        found = [backup for backup in found if backup.id == limit]
    else:
        found = [backup for backup in found if backup.id <= now and backup.kind != BEFORE_RESTORE]
        found = [backup for backup in found if backup.id[: len(limit)] <= limit]
    if not found:
        raise RefusedError(
            f"there is no backup with {' and '.join(parts)}{f' for --at {at}' if at else ''}; `slurmstack backup list` "
            "shows what there is"
        )
    return found[-1]


def chosen(parts: Sequence[str]) -> Backup:
    """The one that is asked for by `AT`. Raises CannotGoOnError."""
    restic.open_repository()
    now = time.strftime(ID_FORMAT, time.gmtime())
    return choose(existing(), os.environ.get("AT", ""), parts, now=now)


def readable(parts: Sequence[str]) -> Backup:
    """The same, when all of it but the content of the jail's files was read, and slurmctld here would read the state.

    Raises CannotGoOnError.
    """
    backup = chosen(parts)
    # A directory of the jail that cannot be read would be put back as an empty one.
    how = {"state": ("dump", str(STAGE)), "database": ("dump", database.DUMP), "jail": ("stats",)}
    for part in parts:
        command, *path = how[part]
        read = restic.call(command, backup.snapshot(part), *path, stdout=subprocess.DEVNULL)
        if not read.ok:
            raise CannotGoOnError(f"backup {backup.id} cannot be read; nothing was touched: {restic.last_words(read)}")
    if "state" in parts:
        with tempfile.NamedTemporaryFile(dir=restic.CACHE) as jobs:  # empty where there is none
            restic.call("dump", backup.snapshot("state"), str(COPIES / state.JOBS), stdout=jobs)
            state.refuse_unreadable(Path(jobs.name), backup.id, run(["/usr/sbin/slurmctld", "-V"]).stdout)
    return backup


def list_backups(_log: Log) -> None:
    """Print all backups as one line of JSON; with `WHAT`, only the one that a restore of these would take."""
    if parts := os.environ.get("WHAT", "").split():
        found = [readable(parts)]
    else:
        restic.open_repository()
        found = existing()
    print(json.dumps([backup.as_data() for backup in found]))


def verify(log: Log) -> None:
    """Check that the repository is whole, and read a share of its content (`READ`: `5%`, or `100%`)."""
    restic.open_repository()
    share = os.environ.get("READ") or "5%"
    done = restic.call("check", "--quiet", f"--read-data-subset={share}")
    if not done.ok:  # what to do is among its last words
        words = " ".join(done.stderr.split())[-1000:]
        raise CannotGoOnError(f"the repository is damaged, or cannot be read (docs/restore.md): {words}")
    log(f"the repository is whole; read: {share}")


# --- Saving -----------------------------------------------------------------------------------------------------------


def prints_of(keys: Path) -> list[str]:
    """One of each key: clusters that have one in common are the same. In the volumes of Secrets keys are links."""
    files = [file for file in sorted(keys.glob("*/*")) if file.is_file() and not file.name.startswith("..")]
    return sorted({sha256(content).hexdigest()[:12] for file in files if (content := file.read_bytes())})


def refuse_another_cluster(backups: Sequence[Backup], cluster: Iterable[str]) -> None:
    """Raise RefusedError where the last backup is of another cluster, or of this one before it was made anew.

    A new, empty cluster of the same stack file would put its emptiness in the place of what is to be restored.
    """
    if backups and backups[-1].cluster.isdisjoint(cluster):
        raise RefusedError(
            f"the last backup, {backups[-1].id}, is of another cluster, or of this one before it was made anew: they "
            "have no key in common. `slurmstack backup now` begins to save this cluster after it, as it is now; a "
            "second cluster needs a backup.prefix of its own. Only where this one is new and empty: `slurmstack "
            "restore` puts that backup in the place of what is here"
        )


def _save(log: Log, marks: Mapping[str, str], part: str, *what: str, still: Path | None = None) -> None:
    """Make one snapshot. What cannot be read of the jail is named, and left out. Raises CannotGoOnError.

    `still`: a directory that must be there afterwards, or what is saved is not whole.
    """
    tags = [f"{key}={value}" for key, value in {**marks, "part": part}.items()]
    moment = time.strftime("%Y-%m-%d %H:%M:%S", time.strptime(marks["backup"], ID_FORMAT))
    how = ["--json", "--quiet", "--host", restic.HOST, "--time", moment]
    done = restic.call("backup", *how, *(f"--tag={tag}" for tag in (restic.TAG, *tags)), *what)
    if not done.ok and done.code != restic.INCOMPLETE:
        raise CannotGoOnError(f"{part} could not be saved: {restic.last_words(done)}")
    unread = restic.failed_files(done)
    moved = still is not None and not still.exists()
    if moved or (unread and part != "jail"):  # a restore would take what was saved by half
        half = str(json.loads(done.stdout.splitlines()[-1])["snapshot_id"])
        restic.must(f"{part} was saved by half, and cannot be removed", "forget", "--quiet", half)
        why = "slurmctld started meanwhile and moved it; make a backup anew" if moved else unread[0]
        raise CannotGoOnError(f"{part} could not be saved: {why}")
    for line in unread[:MOST_NAMED]:
        log(f"not read ({len(unread)} in all): {line}")
    log(f"{part} is saved in backup {marks['backup']}")


def save_state(log: Log) -> None:
    """The first container: opens the repository, and saves all but the jail."""
    expect_volume(STATE)
    parts, kind = ["keys", *required_env("PARTS").split()], os.environ.get("KIND") or "scheduled"
    # By itself it begins nothing: a repository that somebody has taken away would be made anew without a word.
    if restic.open_repository(make=kind == "manual"):
        log("the repository is made. Without the Secret's password nobody can read it: keep that elsewhere, too")
    cluster = prints_of(KEYS)
    if kind == "scheduled":
        refuse_another_cluster(existing(), cluster)
    begun = time.strftime(ID_FORMAT, time.gmtime())
    marks = {"backup": begun, "kind": kind, "parts": "+".join(parts), "cluster": "+".join(cluster)}
    _MADE.write_text(json.dumps(marks), encoding="utf-8")
    log(f"backup {begun}: {', '.join(parts)}")
    directory = terms.current(STATE) or STATE
    shutil.rmtree(COPIES, ignore_errors=True)
    if state.JOBS not in state.take(directory, COPIES):
        log("slurmctld has saved no jobs yet")
    scripts = [str(path) for path in directory.iterdir() if state.SCRIPTS.fullmatch(path.name)]
    _save(log, marks, "state", str(COPIES), *scripts, still=directory)
    _save(log, marks, "keys", str(KEYS), str(STACK_FILE))
    if "database" in parts:  # the dump goes from the one program to the other, and lies nowhere
        with database.opened(database.of_slurmdbd(), log) as records:
            name = ["--stdin-filename", database.DUMP, "--stdin-from-command", "--", *records.dump]
            _save(log, marks, "database", *name)


def save_jail(log: Log) -> None:
    """The last: the longest, and the one that users can hold up. What is too old goes afterwards."""
    restic.enter_jail()
    marks = json.loads(_MADE.read_text(encoding="utf-8"))
    largest = f"--exclude-larger-than={required_env('LARGEST_FILE')}"
    _save(log, marks, "jail", *restic.in_jail(), largest, str(JAIL))
    keep = [f"--keep-{each}" for each in os.environ.get("KEEP", "").split()]
    for part in ("keys", "state", "database", "jail") if keep and marks["kind"] in KINDS else ():
        which = [word for kind in KINDS for word in ("--tag", f"{restic.TAG},part={part},kind={kind}")]
        prune = ["--prune"] if part == "jail" else []  # what only those needed that are gone
        done = restic.call("forget", "--quiet", "--group-by", "host", *which, *keep, *prune)
        if not done.ok:  # the backup is there, and the next one tries again
            return log.failure(f"old backups could not be removed: {restic.last_words(done)}")
    return None
