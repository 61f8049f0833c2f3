"""What of a backup is looked at before anything is touched, how the jail is put back, and what restic says of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from images.backup import backups, restore
from images.backup.restic import Repository, failed_files, is_done_but_for_files
from images.common.command import Result
from images.common.process import CannotGoOnError

ID = "20261126T020000Z"
PARTS = ("state", "database", "jail")


class Damaged(Repository):
    """One in which this cannot be read."""

    def __init__(self, what: str, parts: Sequence[str] = PARTS) -> None:
        self.url, self._what, self._parts = "s3", what, parts

    def run(self, *arguments: str, **_: Any) -> Result:
        damaged = self._what in arguments or arguments[0] == self._what
        return Result(code=1, stderr="Fatal: error walking snapshot") if damaged else Result(code=0)

    def snapshots(self) -> list[Any]:
        return [{"id": part, "tags": ["slurmstack", f"backup={ID}", f"part={part}"]} for part in self._parts]


@pytest.mark.parametrize(("part", "what"), [("state", "/stage"), ("database", "/database.sql"), ("jail", "stats")])
def test_a_backup_that_cannot_be_read_is_none_to_restore(monkeypatch: pytest.MonkeyPatch, part: str, what: str) -> None:
    monkeypatch.delenv("AT", raising=False)
    with pytest.raises(CannotGoOnError, match=f"{ID} cannot be read; nothing was touched: Fatal: error walking"):
        backups.readable(Damaged(what), [part])


def test_a_rehearsal_reads_the_jail_of_a_backup_that_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """One before an upgrade has none."""
    monkeypatch.delenv("AT", raising=False)
    assert backups.readable(Damaged("stats", ["database"]), ["database"], and_jail=True).id == ID
    with pytest.raises(CannotGoOnError, match="cannot be read"):
        backups.readable(Damaged("stats"), ["database"], and_jail=True)


def test_the_pattern_of_a_name_takes_that_file_alone() -> None:
    """As restic (0.18) was seen to take these: each of the files stayed, and none beside it."""
    names = ("/taken $1", "/new\n", "/[1]*?\\", "/blank\xa0", "/odd\udcff")
    patterns = ["/taken[ ]$$1", "/new[\x01- ]", "/\\[1]\\*\\?\\\\", "/blank[\xa0]", "/odd\udcff"]
    assert [restore.pattern_of(name) for name in names] == patterns


END = {"message_type": "exit_error", "code": 1, "message": "Fatal: There were 1 errors\n"}


def error(item: str, message: str) -> dict[str, object]:
    return {"message_type": "error", "error": {"message": message}, "during": "restore", "item": item}


@pytest.mark.parametrize(
    ("item", "message", "single"),
    [
        ("/home/a", "open /jail/home/a: permission denied", True),
        ("/home/a", "xattr.LSet /jail/home/a user.a: no space left on device", True),
        ("/home/a", "write /jail/home/a: no space left on device", False),
        ("/home/o'a", "write /jail/home/o'a: read-only file system", False),
    ],
)
def test_a_file_that_cannot_be_put_back_is_not_a_full_volume(item: str, message: str, single: bool) -> None:
    done = Result(code=1, stderr="\n".join(map(json.dumps, (error(item, message), END))))
    assert is_done_but_for_files(done) is single


def test_no_name_of_a_file_hides_that_it_was_not_put_back() -> None:
    """restic leaves U+0085 in its JSON as it is."""
    told = error("/home/a\u0085b", "lsetxattr /jail/home/a\u0085b: operation not supported")
    assert len(failed_files(Result(code=1, stderr=json.dumps(told, ensure_ascii=False)))) == 1


def test_a_restore_that_did_not_come_to_its_end_is_none_of_single_files() -> None:
    names = error("There were 1 errors", "open There were 1 errors: permission denied")
    fatal = {**END, "message": "Fatal: unable to load index"}
    assert not is_done_but_for_files(Result(code=1, stderr="\n".join(map(json.dumps, (names, fatal)))))
