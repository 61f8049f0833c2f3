"""Files and directories appear whole or not at all, and steps are told."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from local import report
from local.files import whole_directory, write_whole


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_a_file_is_for_its_owner_and_what_it_had_stays_until_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "made" / "file"
    write_whole(target, "old")

    def full(_: int) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        write_whole(target, "new")

    assert (target.read_text(), target.stat().st_mode & 0o777) == ("old", 0o600)
    assert names(target.parent) == ["file"]


def test_nothing_is_left_of_a_directory_that_could_not_be_made(tmp_path: Path) -> None:
    def interrupted() -> None:
        with whole_directory(tmp_path / "key") as work:
            (work / "file").touch()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()

    assert names(tmp_path) == []


def test_another_run_that_was_first_is_believed(tmp_path: Path) -> None:
    with whole_directory(tmp_path / "key") as work:
        (work / "mine").touch()
        with whole_directory(tmp_path / "key") as first:
            (first / "theirs").touch()

    assert names(tmp_path) == ["key"]
    assert names(tmp_path / "key") == ["theirs"]


def test_a_finished_step_says_what_it_was_and_what_it_took() -> None:
    stream = io.StringIO()
    with report.PlainReport(stream).step("Build it") as step:
        step.note("3 packages")
    assert stream.getvalue() == "Build it, 3 packages (0.0 s)\n"
