"""What a restore of the jail leaves alone, and that it removes nothing for a backup that cannot be read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

from images.backup import restore, settings
from images.common.process import CannotGoOnError

JAIL = Path("/jail")


def listed(*paths: str) -> Iterator[str]:
    """As restic lists them; directories end with a slash."""
    for path in paths:
        yield json.dumps({"path": f"/jail{path}".rstrip("/"), "type": "dir" if path.endswith("/") else "file"})


@pytest.mark.parametrize(
    ("spared", "kept"),
    [
        ("/home/alice/large", {"/home/alice/large"}),
        ("/home/alice/grown", set()),
        ("/home/bob/large", {"/home/bob"}),
        ("/data/new/large", {"/data"}),
        ("/home/alice/grown/large", {"/home/alice/grown"}),
        ("/home/al\udcffice/large", {"/home/al\udcffice/large"}),
        ("/home/al\udcffice/grown", set()),
    ],
)
def test_what_is_in_no_backup_stays_with_a_directory_that_is_in_none(spared: str, kept: set[str]) -> None:
    there = listed("/home/", "/home/alice/", "/home/alice/grown", "/home/al\ufffdice/", "/home/al\ufffdice/grown")
    assert restore.kept_of([spared], there, JAIL) == kept


@pytest.mark.parametrize(
    ("path", "pattern"),
    [
        ("/a [1]*?\\ $HOME", r"/a[ ]\[1]\*\?\\[ ]$$HOME"),
        ("/mine\n/home", "/mine[\x01- ]/home"),
        ("/blank ", "/blank[ ]"),
        ("/blank\xa0", "/blank[\xa0]"),
    ],
)
def test_a_name_is_one_pattern_that_is_like_nothing_else(path: str, pattern: str) -> None:
    """restic (0.18) was seen to take these: each of these files stayed, and none beside it."""
    assert restore.pattern_of(path) == pattern


def test_a_backup_that_cannot_be_read_takes_nothing_away(monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged(*_: object) -> Iterator[str]:
        yield from listed("/home/")
        raise CannotGoOnError("the backup cannot be listed: load tree: invalid data returned")

    repository = Mock(listed=damaged, must=Mock(return_value=""))
    told = {"what": ["jail"], "snapshots": {"jail": "1"}, "excluded": [], "largest": None}
    monkeypatch.setattr(settings, "enter_jail", lambda: None)
    monkeypatch.setattr(settings, "go_on", lambda **_: repository)
    monkeypatch.setattr(settings, "told", lambda: told)
    monkeypatch.setenv("LARGEST_FILE", "1000")
    with pytest.raises(CannotGoOnError, match="cannot be listed"):
        restore.restore_jail(Mock())
    assert not repository.run.called
