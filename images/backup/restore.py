"""restore STEP: puts parts of a backup back. `choose` comes first, then `look`, `database`, `state`, `jail`.

What the stack's daemons would write to is away meanwhile (cli/backup/restore.py). Each step can be done again: one that
was interrupted is mended by the same restore once more.

In a rehearsal (`REHEARSAL=yes`), in a cluster that is thrown away, each part also tells a line of JSON: what has to be
known of the backup by `slurmstack backup rehearse`, which compares.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from images.backup import database, settings, state
from images.backup.backups import ID_FORMAT, backups_of, choose
from images.backup.database import Database
from images.backup.restic import CACHE, Repository, only_single_files, unreadable
from images.backup.settings import COPIES, JAIL, STAGE, STATE, environment
from images.common import terms
from images.common.jail_roots import NUMBERS, ROOTS, names
from images.common.log import Log
from images.common.mountinfo import expect_volume
from images.common.process import CannotGoOnError, program, required_env

MARK: Final = "rehearsal: "
"""Beginning of a line of a rehearsal; cli/backup/verdict.py reads them."""

NEWEST: Final = 500
"""Records of accounting that slurmdbd is asked for, the last of them."""

MOST_NAMED: Final = 5
"""Files that could not be put back, by name."""


def _is_rehearsal() -> bool:
    """Whether this puts back into a cluster that is thrown away."""
    return environment("REHEARSAL") == "yes"


def _tell(part: str, **found: Any) -> None:
    """Write the line of a part."""
    print(f"{MARK}{json.dumps({'part': part, **found})}", flush=True)


def records_of(database: Database, cluster: str) -> dict[str, Any]:
    """How many records of jobs there are, which have no end yet, and which are the last."""
    table = f"{cluster}_job_table"
    if table not in database.tables(table):
        return {"records": 0, "open": [], "newest": []}
    (count,) = database.ask(f"SELECT COUNT(*) FROM `{table}` WHERE deleted = 0")  # noqa: S608  our own names
    columns = "id_job, id_array_job, id_user, time_submit"
    unended = database.ask(f"SELECT {columns} FROM `{table}` WHERE deleted = 0 AND time_end = 0")  # noqa: S608
    newest = database.ask(f"SELECT id_job FROM `{table}` WHERE deleted = 0 ORDER BY job_db_inx DESC LIMIT {NEWEST}")  # noqa: S608
    return {
        "records": int(count),
        "open": [[int(number) for number in line.split("\t")] for line in unended],
        "newest": sorted({int(line) for line in newest}),
    }


def queue_of(directory: Path) -> dict[str, Any]:
    """When slurmctld had saved its jobs (seconds since 1970, 0: never), and which jobs have a script there."""
    scripts = (path.name for path in directory.glob("hash.*/job.*"))
    return {
        "saved": state.saved_at(directory),
        "scripts": sorted({int(name.removeprefix("job.")) for name in scripts if name.removeprefix("job.").isdigit()}),
    }


_OF_FILE_SYSTEMS = ("system.nfs4_acl", "security.selinux")
"""Attributes that file systems have by themselves, and refuse to have taken away or set."""


def choose_backup(log: Log) -> None:
    """Find the backup, and see that what is not large can be read as a whole, before anything is touched."""
    parts = required_env("WHAT").split()
    repository = settings.begin(what=parts, highest=0)
    repository.open(make=False, log=log)
    now = time.strftime(ID_FORMAT, time.gmtime())
    backup = choose(backups_of(repository.snapshots()), settings.environment("AT"), parts, now=now)
    if "database" in parts:
        read, _ = repository.pipe(backup.snapshots["database"], database.DUMP, None)
        if not read.ok:
            raise repository.problem(f"the database in backup {backup.id} cannot be read; nothing was touched", read)
    settings.tell(backup=backup.id, snapshots=dict(backup.snapshots), excluded=backup.excluded, largest=backup.largest)
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
    repository = settings.go_on()
    expect_volume(STATE)
    if _snapshot("state", log) is not None:
        with tempfile.TemporaryDirectory(dir=CACHE) as directory:
            _fetch_state(repository, Path(directory))
            state.refuse_newer(terms.current(STATE) or STATE, Path(directory), str(settings.told()["backup"]))


def restore_database(log: Log) -> None:
    """Load the dump into an empty database. With the state alone, that only learns the highest job id."""
    repository = settings.go_on()
    snapshot, cluster = _snapshot("database", log), required_env("CLUSTER_NAME")
    try:
        with database.opened(log) as target:
            if snapshot is not None:
                _load(target, repository, snapshot, cluster)
                log(f"the database is that of {settings.told()['backup']}")
                if _is_rehearsal():
                    _tell("database", **records_of(target, cluster))
            settings.tell(highest=target.highest_id(cluster))
    except CannotGoOnError as error:
        if snapshot is not None:
            raise
        log(f"the next job gets an id above those of both queues, whatever accounting has: {error}")


def _load(target: database.Database, repository: Repository, snapshot: str, cluster: str) -> None:
    target.refuse_others(cluster)
    target.remember(cluster)
    target.empty()
    read, code = repository.pipe(snapshot, database.DUMP, target.load)
    if not read.ok:
        raise repository.problem("the database was not restored as a whole; restore it again", read)
    if code != 0:
        raise CannotGoOnError(f"the database was not restored as a whole: mariadb ended with {code}, as above")
    target.go_on_above()


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
    repository = settings.go_on()
    expect_volume(STATE)
    terms.return_to_one(STATE)
    snapshot = _snapshot("state", log)
    if snapshot is None:
        state.take_id_of_slurmdbd(STATE)
        return
    told = settings.told()
    fetch = partial(_fetch_state, repository)
    state.put_back(STATE, fetch, backup=str(told["backup"]), highest=int(told["highest"]), log=log)
    if _is_rehearsal():
        _tell("state", **queue_of(STATE))


def restore_jail(log: Log) -> None:
    """Bring the jail to what it was: what has come since goes. No pod that leads into it runs.

    A single file that cannot be put back (a user may have made one so) is named, and keeps nothing else from it. What
    no backup was to have stays: what is excluded, what is too large, the new directories that these are in, and roots
    that have come since, as the stack file may name one of those.
    """
    settings.enter_jail()
    repository = settings.go_on(last=True)
    snapshot = _snapshot("jail", log)
    if snapshot is None:
        return
    told = settings.told()
    excluded = [*settings.in_jail(settings.environment("EXCLUDE")), *(f"--exclude={path}" for path in told["excluded"])]
    had = repository.must("the backup cannot be listed", "ls", "--json", snapshot, f"{JAIL}/{ROOTS}")
    roots = [f"{JAIL}/{ROOTS}", *(f"{JAIL}/{ROOTS}/{name}" for name in (NUMBERS, *names(JAIL)))]
    new = [path for path in roots if f'"{path}"' not in had]
    largest = min(filter(None, (int(required_env("LARGEST_FILE")), told["largest"])))
    spared = [*_larger_than(largest, JAIL), *_excluded(excluded, JAIL)]
    # All of the list is read before: restic takes a directory that it cannot read in the backup for an empty one.
    kept = kept_of(spared, repository.listed(snapshot, JAIL), JAIL) - {path.removeprefix(str(JAIL)) for path in new}
    for path in sorted(kept)[:MOST_NAMED]:
        log(f"{path[-200:]!a} stays: no backup has it, or something in it ({len(kept)} in all)")
    how = ["--delete", "--overwrite=always", "--sparse", "--json", "--quiet"]
    how += [argument.replace(f"={JAIL}/", "=/", 1) for argument in (*excluded, *(f"--exclude={path}" for path in new))]
    how += [f"--exclude-xattr={name}" for name in _OF_FILE_SYSTEMS]
    how += ["--verify"] if _is_rehearsal() else []
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", errors="surrogateescape", dir=CACHE) as patterns:
        patterns.writelines(f"{pattern_of(path)}\n" for path in kept)
        patterns.flush()
        how.append(f"--exclude-file={patterns.name}")
        done = repository.run("restore", f"{snapshot}:{JAIL}", "--target", str(JAIL), *how)
    failed = unreadable(done)
    if not done.ok and not only_single_files(done, failed):
        raise repository.problem("the jail was not restored as a whole; restore it again", done)
    for line in failed[:MOST_NAMED]:
        log(f"not put back: {line}")
    found = json.loads(done.stdout.splitlines()[-1])
    gone, more = found.get("files_deleted", 0), f", and {len(failed)} files were not put back" if failed else ""
    log(f"the jail is that of {told['backup']}: {gone} files that have come since are gone{more}")
    if _is_rehearsal():
        named = failed[:MOST_NAMED]
        files, size = found.get("total_files", 0), found.get("total_bytes", 0)
        _tell("jail", files=files, bytes=size, different=len(failed) or int(not done.ok), named=named)


def _larger_than(size: int, jail: Path) -> Iterator[str]:
    """Paths within the jail of files that are in no backup."""
    for folder, _, files in os.walk(jail):
        for name in files:
            path = os.path.join(folder, name)  # noqa: PTH118  a million of them
            with suppress(OSError):
                found = os.lstat(path)
                if stat.S_ISREG(found.st_mode) and found.st_size > size:
                    yield path.removeprefix(str(jail))


def _excluded(arguments: Iterable[str], jail: Path) -> Iterator[str]:
    """Paths within the jail that are there, and that the stack file leaves out of backups, or did."""
    for pattern in (argument.removeprefix("--exclude=") for argument in arguments):
        for path in jail.glob(pattern.removeprefix(f"{jail}/")) if not pattern.endswith("/*") else ():
            if path.parent.resolve() == path.parent:
                yield str(path).removeprefix(str(jail))


def kept_of(spared: Iterable[str], listed: Iterable[str], jail: Path) -> set[str]:
    """What a restore has to leave alone for these paths within the jail. `listed`: the jail in the backup.

    What the backup has is put back nevertheless. Of a directory that it does not have, all stays: restic removes one
    with whatever is in it.
    """
    paths = [*spared]
    known = {_as_listed(path) for path in paths}
    above = {str(parent) for path in known for parent in Path(path).parents}
    there = {"/"}
    for line in listed:
        node = json.loads(line)
        path = str(node.get("path", "")).removeprefix(str(jail))
        if path in known or (path in above and node["type"] == "dir"):
            there.add(path)
    kept = set()
    for path in paths:
        listed_as = _as_listed(path)
        new = sum(str(parent) not in there for parent in Path(listed_as).parents)
        if new or listed_as not in there:
            kept.add(path.rsplit("/", new)[0])
    return kept


def _as_listed(path: str) -> str:
    """As restic's list has it: a byte that is not UTF-8 is not told as it is."""
    return re.sub("[\udc80-\udcff]", "\ufffd", path)


def pattern_of(path: str) -> str:
    """A line of restic's file of patterns that this path is like.

    The file cannot have a line's end in a name, and restic takes away what is white at a line's end.
    """
    escaped = re.sub(r"([*?\[\\])", r"\\\1", path).replace("$", "$$")
    return re.sub(r"\s", lambda white: "[\x01- ]" if white[0] == "\n" else f"[{white[0]}]", escaped)


STEPS = {
    "choose": choose_backup, "look": look_at_state, "database": restore_database, "state": restore_state,
    "jail": restore_jail,
}  # fmt: skip


def main() -> None:
    """Entry point."""
    with program("restore") as log:
        STEPS[sys.argv[1]](log)
