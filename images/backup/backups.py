"""What a backup is: snapshots of restic, one for each part, that carry the same id. And of which cluster it is.

A cluster is known by its keys: a rotation changes one of them, and the others stay. Snapshots have a print of each in a
tag.

The program backups list|verify: what there is, as JSON in the last line, and whether it can be read.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from images.backup import settings
from images.backup.restic import TAG
from images.backup.settings import HANDOVER, environment
from images.common.log import Log
from images.common.process import RefusedError, program

ID_FORMAT: Final = "%Y%m%dT%H%M%SZ"
_ID: Final = re.compile(r"\d{8}T\d{6}Z")

_MOMENT: Final = re.compile(r"(\d{8}(T\d{4})?)?")
"""A day or a minute, as an id begins."""

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


@dataclass(frozen=True, kw_only=True)
class Backup:
    """All snapshots with one id, which is the moment of its begin (UTC)."""

    id: str
    kind: str
    wanted: frozenset[str]
    """Parts that it was to have."""
    snapshots: Mapping[str, str]
    """Part -> snapshot."""
    sizes: Mapping[str, int]
    """Part -> bytes that were looked at."""
    cluster: frozenset[str]
    """Prints of the keys of its cluster (`prints_of`)."""

    @property
    def complete(self) -> bool:
        """Whether all of its parts are there."""
        return self.wanted <= self.snapshots.keys()

    def as_data(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "id": self.id,
            "time": _time(self.id).isoformat(),
            "kind": self.kind,
            "complete": self.complete,
            "parts": {part: {"snapshot": self.snapshots[part], "bytes": self.sizes[part]} for part in self.snapshots},
        }


def tags(backup: str, part: str, **more: str) -> list[str]:
    """Arguments of `restic backup`, by which `backups_of` finds it again. `more`: kind, parts and cluster, with +."""
    found = (TAG, f"backup={backup}", f"part={part}", *(f"{key}={value}" for key, value in more.items()))
    return [argument for tag in found for argument in ("--tag", tag)]


def backups_of(snapshots: Iterable[Mapping[str, Any]]) -> list[Backup]:
    """The backups, oldest first. A part that was tried twice counts as its last try."""
    grouped: dict[str, list[tuple[dict[str, str], Mapping[str, Any]]]] = {}
    for snapshot in snapshots:
        told = dict(tag.split("=", 1) for tag in snapshot.get("tags") or () if "=" in tag)
        if _ID.fullmatch(told.get("backup", "")) and "part" in told:
            grouped.setdefault(told["backup"], []).append((told, snapshot))
    return [_backup(backup, grouped[backup]) for backup in sorted(grouped)]


def _backup(backup: str, found: list[tuple[dict[str, str], Mapping[str, Any]]]) -> Backup:
    first, parts = found[0][0], {told["part"]: snapshot for told, snapshot in found}
    summaries = {part: snapshot.get("summary") or {} for part, snapshot in parts.items()}
    return Backup(
        id=backup,
        kind=first.get("kind", ""),
        wanted=frozenset(first.get("parts", "").split("+")),
        snapshots={part: str(snapshot["id"]) for part, snapshot in parts.items()},
        sizes={part: int(summary.get("total_bytes_processed", 0)) for part, summary in summaries.items()},
        cluster=frozenset(first.get("cluster", "").split("+")),
    )


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
            last.setdefault(_time(backup.id).strftime(_SPANS[span]), backup.id)
        kept |= set([*last.values()][:number])
    newest = complete[0].id if complete else ""
    gone = [backup for backup in counted if backup.id < newest and backup.id not in kept]
    return [snapshot for backup in gone for snapshot in backup.snapshots.values()]


def refuse_another_cluster(backups: Sequence[Backup], cluster: Iterable[str], url: str) -> None:
    """Raise RefusedError where the last backup is of another cluster, or of this one before it was made anew.

    A new, empty cluster of the same stack file would put its emptiness in the place of what is to be restored. Backups
    of before December 2026 have one print, of munge's key at the first of them, which may have been rotated since.
    """
    if backups and len(backups[-1].cluster) > 1 and backups[-1].cluster.isdisjoint(cluster):
        raise RefusedError(
            f"the last backup in {url}, {backups[-1].id}, is of another cluster, or of this one before it was made "
            "anew: they have no key in common. `slurmstack backup now` begins to save this cluster after it, as it is "
            "now; a second cluster needs a backup.prefix of its own. Only where this one is new and empty: `slurmstack "
            "restore` puts that backup in the place of what is here"
        )


def choose(backups: Iterable[Backup], at: str, parts: Sequence[str], *, now: str) -> Backup:
    """The last backup up to a moment that has all of these parts. Raises RefusedError.

    `at`: empty for the last one of all but those that a restore has made, an id for no other than that one, or a time
    in UTC, up to the end of that minute or day: a schedule for 02:00 begins some seconds later. `now`: id of this
    moment; what is later was made by a clock that is wrong.
    """
    found = [backup for backup in backups if set(parts) <= backup.snapshots.keys()]
    limit = re.sub("[-:]", "", at)
    if _ID.fullmatch(at):
        found = [backup for backup in found if backup.id == at]
    elif _MOMENT.fullmatch(limit):
        found = [backup for backup in found if backup.id[: len(limit)] <= limit and backup.kind != BEFORE_RESTORE]
        found = [backup for backup in found if backup.id <= now]
    else:
        raise RefusedError(
            f"{at!r} is no time: write 2026-11-26T02:00 (UTC), 2026-11-26 for the last of that day, or a backup's id"
        )
    if not found:
        raise RefusedError(
            f"there is no backup with {' and '.join(parts)}{f' for --at {at}' if at else ''}; `slurmstack backup list` "
            "shows what there is"
        )
    return found[-1]


def _time(backup: str) -> datetime:
    return datetime.strptime(backup, ID_FORMAT).replace(tzinfo=UTC)


def key_files(keys: Path) -> list[Path]:
    """Those of Secrets: in their volumes they are links, beside others to directories."""
    return [file for file in sorted(keys.glob("*/*")) if file.is_file() and not file.name.startswith("..")]


def prints_of(keys: Path) -> list[str]:
    """One of each key: clusters that have one in common are the same."""
    return sorted({sha256(content).hexdigest()[:12] for file in key_files(keys) if (content := file.read_bytes())})


def list_backups(log: Log) -> None:
    """Print all backups as one line of JSON; with `WHAT`, only the one that a restore of these parts would take."""
    repository = settings.repository()
    repository.open(make=False, log=log)
    found = backups_of(repository.snapshots())
    if parts := environment("WHAT").split():
        found = [choose(found, environment("AT"), parts, now=time.strftime(ID_FORMAT, time.gmtime()))]
    print(json.dumps([backup.as_data() for backup in found]))


def verify(log: Log) -> None:
    """Check that the repository is whole, and read a share of its content (`READ`: `5%`, or `all`)."""
    repository = settings.repository()
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


COMMANDS = {"list": list_backups, "verify": verify}


def main() -> None:
    """Entry point."""
    with program("backups") as log:
        COMMANDS[sys.argv[1]](log)
