"""What an epilog removes, in a process of its own."""

from __future__ import annotations

from pathlib import Path

from images.health.epilog import in_background
from tests.programs.waiting import wait_until


def test_a_long_removal_goes_on_by_itself(tmp_path: Path) -> None:
    log: list[str] = []

    def slow() -> int:
        wait_until((tmp_path / "go").exists)
        (tmp_path / "done").touch()
        return 1

    in_background([slow], 0.05, log.append)
    assert log == ["files are still being removed"]
    assert not (tmp_path / "done").exists()
    (tmp_path / "go").touch()
    wait_until((tmp_path / "done").exists)
