"""What a rehearsal has to know of a backup to compare: one line of JSON for each part, told while it is put back.

The lines are for `slurmstack backup rehearse` alone, in a cluster that is thrown away (`REHEARSAL=yes`).
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from images.backup import state
from images.backup.database import Database
from images.backup.settings import environment

MARK: Final = "rehearsal: "
"""Beginning of such a line; cli/backup/verdict.py reads them."""

NEWEST: Final = 500
"""Records of accounting that slurmdbd is asked for, the last of them."""

MOST_NAMED: Final = 5
"""Files that differ, by name."""

_TYPES: Final = {"file": stat.S_ISREG, "dir": stat.S_ISDIR, "symlink": stat.S_ISLNK, "fifo": stat.S_ISFIFO,
                 "dev": stat.S_ISBLK, "chardev": stat.S_ISCHR}  # fmt: skip


def is_asked_for() -> bool:
    """Whether this is one."""
    return environment("REHEARSAL") == "yes"


def tell(part: str, **found: Any) -> None:
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


def compare_jail(listed: Iterable[str], jail: Path, *, unrestored: int) -> dict[str, Any]:
    """Look whether all that a backup has is there, as it was. `listed`: `restic ls --json --recursive` of the jail.

    Contents are not read here: restic has read them again (`--verify`). `unrestored`: files of which it complained.
    Nobody else writes to this jail.
    """
    count, size, differing = 0, 0, list[str]()
    for line in listed:
        node = json.loads(line)
        path = Path(node.get("path", "/"))
        if jail not in path.parents or "\ufffd" in path.name:  # a name that is no UTF-8 is not told as it is
            continue
        count += 1
        size += int(node.get("size", 0)) if node["type"] == "file" else 0
        if (why := _difference(node, path)) is not None:
            differing.append(f"{str(path)[-200:]!a}: {why}")
    return {
        "files": count,
        "bytes": size,
        "different": len(differing) + unrestored,
        "named": differing[:MOST_NAMED],
    }


def _difference(node: dict[str, Any], path: Path) -> str | None:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return "is missing"
    except OSError as error:  # deeper than a path can be long: restic has it nevertheless
        return None if error.errno == errno.ENAMETOOLONG else str(error.strerror)
    right = _TYPES.get(node["type"])
    if right is not None and not right(found.st_mode):
        return f"is no {node['type']}"
    if (found.st_uid, found.st_gid) != (node.get("uid", 0), node.get("gid", 0)):
        return f"belongs to {found.st_uid}:{found.st_gid}, not to {node.get('uid', 0)}:{node.get('gid', 0)}"
    if node["type"] == "file" and found.st_size != int(node.get("size", 0)):
        return f"has {found.st_size} bytes, not {node.get('size', 0)}"
    return None
