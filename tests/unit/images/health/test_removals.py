"""What the removal of a user's files keeps in memory, which is in no job's limit."""

from __future__ import annotations

import inspect
import os
from pathlib import Path

import pytest

from images.health import leftovers
from tests.unit.images.health.tables import table


class Noted:
    """The most of some numbers."""

    most = 0

    def note(self, number: int) -> int:
        self.most = max(self.most, number)
        return number


def test_of_a_directory_with_many_names_few_are_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user makes millions of them, and the epilog is in no job's limit."""
    monkeypatch.setattr(leftovers, "_AT_ONCE", 3)
    place = tmp_path / "tmp"
    for number in range(50):
        (place / f"d{number % 5}").mkdir(parents=True, exist_ok=True)
        (place / f"d{number % 5}" / f"{number}").touch()
    stays = (place / "d0" / "0").stat().st_ino
    takes, most = leftovers._Removal.takes, 0

    def counted(removal: leftovers._Removal, status: os.stat_result) -> bool:
        nonlocal most
        frames, frame = 0, inspect.currentframe()
        while frame is not None:
            frames += len(frame.f_locals["names"]) if frame.f_code.co_name == "_empty" else 0
            frame = frame.f_back
        most = max(most, frames)
        return status.st_ino != stays and takes(removal, status)

    monkeypatch.setattr(leftovers._Removal, "takes", counted)
    leftovers.remove_tree(place)
    assert [str(path.relative_to(place)) for path in place.rglob("*")] == ["d0", "d0/0"]
    assert 0 < most <= 2 * 3


@table("whose", {"the user's files": "user", "a job's directory": "job"})
def test_of_many_directories_that_are_too_deep_few_are_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whose: str
) -> None:
    monkeypatch.setattr(leftovers, "_MOST_MOVED", 3)
    place = tmp_path / "tmp"
    for path in (place.joinpath(name, *["d"] * 63) for name in "ab"):
        for number in range(25):
            (path / f"{number}/below").mkdir(parents=True)
    moved = Noted()
    monkeypatch.setattr(leftovers._Removal, "is_full", property(lambda removal: moved.note(len(removal.moved)) >= 3))
    if whose == "job":
        leftovers.remove_tree(place)
        assert not place.exists()
    else:
        # What is removed makes the directories around it newer than that.
        assert leftovers.remove_files(os.getuid(), leftovers.now(), (place,)) > 100
        assert list(place.iterdir()) == []
    assert moved.most == 3
