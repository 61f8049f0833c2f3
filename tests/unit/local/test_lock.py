"""Lock files: some are where every user of the machine may make files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from local import lock
from local.errors import LocalError


def link_to_a_file(place: Path) -> None:
    (place.parent / "precious").write_text("content")
    place.symlink_to(place.parent / "precious")


def link_to_nothing(place: Path) -> None:
    place.symlink_to(place.parent / "made-by-root")


@pytest.mark.parametrize("put", [link_to_a_file, link_to_nothing, Path.mkdir, os.mkfifo])
def test_what_somebody_put_in_a_locks_place_is_named_and_not_written_to(
    put: Callable[[Path], None], tmp_path: Path
) -> None:
    place = tmp_path / "lock"
    put(place)

    with pytest.raises(LocalError, match=f"{place} cannot be used as a lock"):
        lock.open_file(place)

    assert not (tmp_path / "made-by-root").exists()
    assert {path.read_text() for path in tmp_path.glob("precious")} <= {"content"}


def test_a_file_of_another_user_is_not_used_for_that_user_may_hold_it_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lock").touch()
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)

    with pytest.raises(LocalError, match="no plain file of this user"):
        lock.open_file(tmp_path / "lock")


def test_nobody_else_can_hold_a_lock_of_ours(tmp_path: Path) -> None:
    with lock.open_file(tmp_path / "rooms" / "lock") as file:
        assert os.fstat(file.fileno()).st_mode & 0o777 == 0o600
