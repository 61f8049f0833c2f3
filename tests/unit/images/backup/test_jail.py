"""A restore of the jail: what is looked at before anything is touched, and how it puts back."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

from images.backup import restore, settings
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


def test_a_backup_of_the_jail_that_cannot_be_read_is_refused_before_anything_is_touched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WHAT", "jail")
    monkeypatch.setattr(settings, "repository", Damaged)
    handed_over = Mock()
    monkeypatch.setattr(settings, "hand_over", handed_over)
    with pytest.raises(CannotGoOnError, match=f"{ID} cannot be read; nothing was touched: Fatal: error walking"):
        restore.choose_backup(Mock())
    assert not handed_over.called
