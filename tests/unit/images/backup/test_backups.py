"""Which snapshots make a backup, of which cluster, which one a restore takes, and whether it can be read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from images.backup import backups, restic
from images.backup.backups import Backup, backups_of, choose
from images.common.command import Result
from images.common.process import CannotGoOnError, RefusedError

PARTS = ("keys", "state", "jail")
FIRST, SECOND, THIRD = "20261124T020000Z", "20261125T020000Z", "20261126T020000Z"
NOW = "20261126T030000Z"


def snapshots(backup: str, *parts: str, kind: str = "scheduled") -> list[dict[str, Any]]:
    """As those of all versions of slurmstack are."""
    marks = ["slurmstack", f"backup={backup}", f"kind={kind}", f"parts={'+'.join(PARTS)}", "cluster=0a+1b"]
    size = {"total_bytes_processed": 7}
    return [{"id": f"{part}-{backup}", "tags": [*marks, f"part={part}"], "summary": size} for part in parts]


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
    for at in ("yesterday", "2026-25-11", "2026-11-25T02:00:00+01:00"):
        with pytest.raises(RefusedError, match="is no time: write 2026-11-26T02:00"):
            last_up_to(found, at, PARTS)


def test_one_that_lacks_a_part_says_so() -> None:
    first, second, third = (backup.as_data() for backup in three())
    assert (first["complete"], second["complete"], third["complete"]) == (True, True, False)
    assert first["parts"]["jail"] == {"snapshot": f"jail-{FIRST}", "bytes": 7}
    assert (first["time"], first["kind"]) == ("2026-11-24T02:00:00+00:00", "scheduled")


@pytest.mark.parametrize(("part", "what"), [("state", "/stage"), ("database", "/database.sql"), ("jail", "stats")])
def test_a_backup_that_cannot_be_read_is_none_to_restore(monkeypatch: pytest.MonkeyPatch, part: str, what: str) -> None:
    def call(*arguments: str, **_: Any) -> Result:
        return Result(code=1, stderr="Fatal: error walking snapshot") if what in arguments else Result(code=0)

    monkeypatch.setattr(restic, "call", call)
    monkeypatch.setattr(backups, "chosen", lambda _: backups_of(snapshots(FIRST, "state", "database", "jail"))[0])
    with pytest.raises(CannotGoOnError, match=f"{FIRST} cannot be read; nothing was touched: Fatal: error walking"):
        backups.readable([part])
