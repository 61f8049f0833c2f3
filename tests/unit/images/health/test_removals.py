"""What the removal of a user's files keeps in memory, which is in no job's limit."""

from __future__ import annotations

import inspect
import os
from pathlib import Path

import pytest

from images.health import leftovers


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
