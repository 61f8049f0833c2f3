"""A restore of the jail: what is looked at before anything is touched, and how it puts back."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from images.backup import backups, restic, restore
from images.backup.restic import Repository
from images.common.command import Result
from images.common.process import CannotGoOnError

ID = "20261126T020000Z"


class Damaged(Repository):
    """One whose trees cannot be read."""

    def __init__(self) -> None:
        self.url = "s3"

    def run(self, *arguments: str, **_: Any) -> Result:
        return Result(code=1, stderr="Fatal: error walking snapshot") if arguments[0] == "stats" else Result(code=0)

    def snapshots(self) -> list[Any]:
        return [{"id": "1", "tags": ["slurmstack", f"backup={ID}", "part=jail", "parts=jail"]}]


def test_a_backup_of_the_jail_that_cannot_be_read_is_none_to_restore(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AT", raising=False)
    with pytest.raises(CannotGoOnError, match=f"{ID} cannot be read; nothing was touched: Fatal: error walking"):
        backups.readable(Damaged(), ["jail"])


def test_what_is_excluded_now_and_what_is_in_the_place_of_a_file_are_left_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """restic gives a directory in the place of a file the file's mode, takes hard links away, and waits at a FIFO.

    It (0.18) was seen to take these patterns: each of these files stayed, and none beside it.
    """
    names = ["file", "link", "gone", "taken $1", "pipe", "odd\udcff", "new\n", "[1]*?\\", "blank\xa0", "dir"]
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path)
    for name in ("taken $1", "odd\udcff", "new\n", "[1]*?\\", "blank\xa0", "dir"):
        (tmp_path / name).mkdir()
    os.mkfifo(tmp_path / "pipe")
    told: list[str] = []

    def run(*arguments: str, stdout: Any = None) -> Result:
        if arguments[0] == "ls":
            stdout.write(b"\n".join(json.dumps(node).encode() for node in listed))
            return Result(code=0)
        (patterns,) = [word.removeprefix("--exclude-file=") for word in arguments if "exclude-file" in word]
        told.extend((*arguments, Path(patterns).read_text(encoding="utf-8", errors="surrogateescape")))
        return Result(code=0, stdout='{"total_files": 1}')

    listed = [
        {"path": f"{tmp_path}/{name}".replace("\udcff", "\ufffd"), "type": "dir" if name == "dir" else "file"}
        for name in names
    ]
    repository = Mock(run=run)
    monkeypatch.setattr(restic, "enter_jail", lambda: None)
    monkeypatch.setattr(restic, "handed_over", lambda **_: repository)
    monkeypatch.setattr(restic, "told", lambda: {"backup": ID, "snapshots": {"jail": "1"}})
    monkeypatch.setenv("EXCLUDE", '["/scratch"]')
    for place, name in ((restic, "JAIL"), (restore, "JAIL"), (restore, "CACHE")):
        monkeypatch.setattr(place, name, tmp_path)
    log = Mock()
    restore.restore_jail(log)
    assert "--exclude=/scratch" in told
    assert told[-1] == "/taken[ ]$$1\n/pipe\n/new[\x01- ]\n/\\[1]\\*\\?\\\\\n/blank[\xa0]\n/odd\udcff\n"
    log.assert_any_call("not put back (6 in all): '/pipe': something else than a file is in its place")
