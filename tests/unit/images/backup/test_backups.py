"""Which snapshots make a backup, of which cluster, and which one a restore takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from images.backup.backups import (
    BEFORE_RESTORE,
    BEFORE_UPGRADE,
    Backup,
    backups_of,
    choose,
    superfluous,
    tags,
)
from images.common.process import RefusedError

PARTS = ("keys", "state", "jail")


def snapshots(backup: str, *parts: str, kind: str = "scheduled", cluster: str = "one") -> list[dict[str, Any]]:
    found = []
    for part in parts:
        arguments = tags(backup, part, kind=kind, parts="+".join(PARTS), cluster=cluster)
        marks = [argument for argument in arguments if argument != "--tag"]
        found.append({"id": f"{part}-{backup}", "tags": marks, "summary": {"total_bytes_processed": 7}})
    return found


FIRST, SECOND, THIRD = "20261124T020000Z", "20261125T020000Z", "20261126T020000Z"
NOW = "20261126T030000Z"


def last_up_to(backups: list[Backup], at: str, parts: Sequence[str]) -> str:
    return choose(backups, at, parts, now=NOW).id


def three() -> list[Backup]:
    return backups_of([*snapshots(FIRST, *PARTS), *snapshots(THIRD, "keys"), *snapshots(SECOND, *PARTS)])


@pytest.mark.parametrize(
    ("at", "taken"),
    [
        ("", SECOND),
        (FIRST, FIRST),
        ("2026-11-24", FIRST),
        ("2026-11-25T01:59", FIRST),
        ("2026-11-25T02:00", SECOND),
        ("2040-01-01", SECOND),
    ],
)
def test_the_last_one_up_to_a_moment_with_all_that_is_asked_for_is_taken(at: str, taken: str) -> None:
    of_a_wrong_clock = backups_of(snapshots("20361126T020000Z", *PARTS))
    assert last_up_to([*three(), *of_a_wrong_clock], at, PARTS) == taken


def test_an_id_is_that_backup_and_no_other() -> None:
    """Another one in its place would be put back over what came since."""
    found = [*three(), *backups_of(snapshots("20261126T021500Z", "keys", "state", kind="before-restore"))]
    assert last_up_to(found, "20261126T021500Z", ["state"]) == "20261126T021500Z"
    assert last_up_to(found, "", ["state"]) == SECOND, "what a restore has saved is taken by its id only"
    with pytest.raises(RefusedError, match="no backup with state and database and jail for --at 20261126T021500Z"):
        last_up_to(found, "20261126T021500Z", ["state", "database", "jail"])
    with pytest.raises(RefusedError, match="there is no backup with state for --at 20261125T020001Z"):
        last_up_to(found, "20261125T020001Z", ["state"])
    for at in ("yesterday", "2026-25-11"):
        with pytest.raises(RefusedError, match=f"'{at}' is no time: write 2026-11-26T02:00"):
            last_up_to(found, at, PARTS)


def kept(keep: dict[str, int], *more: dict[str, Any]) -> set[str]:
    """Days of November that have a backup left, of one each night at 2 from the 1st to the 26th."""
    nights = [snapshots(f"202611{day:02}T020000Z", *PARTS) for day in range(1, 27)]
    found = backups_of([*(snapshot for night in nights for snapshot in night), *more])
    gone = {snapshot.partition("-")[2] for snapshot in superfluous(found, keep)}
    return {backup.id[6:11] for backup in found if backup.id not in gone}


def test_retention_keeps_the_last_and_the_last_of_a_day_a_week_and_a_month() -> None:
    assert kept({"last": 2}) == {"26T02", "25T02"}
    evening = snapshots("20261125T200000Z", *PARTS)
    assert kept({"daily": 2}, *evening) == {"26T02", "25T20"}
    assert kept({"weekly": 3}) == {"26T02", "22T02", "15T02"}, "weeks end on Sunday"
    assert kept({"monthly": 5, "last": 2}) == {"26T02", "25T02"}


def test_retention_takes_all_parts_together_and_those_that_lack_one_never_count() -> None:
    failed = [snapshot for hour in (3, 4, 5) for snapshot in snapshots(f"20261125T0{hour}0000Z", "keys", "state")]
    assert kept({"last": 2}, *failed) == {"26T02", "25T02"}
    later = snapshots("20261127T020000Z", "keys", "state")
    assert kept({"last": 1}, *later) == {"27T02", "26T02"}, "it may be the one that is still being made"
    copy = snapshots("20261103T120000Z", *PARTS, kind=BEFORE_RESTORE)
    assert kept({"last": 1}, *copy) == {"26T02", "03T12"}
    before = snapshots("20261104T120000Z", *PARTS, kind=BEFORE_UPGRADE)
    assert kept({"last": 1}, *before) == {"26T02", "04T12"}
