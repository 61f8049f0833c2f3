"""A job's temporary directory: its user's alone, and nobody can take its name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from images.worker import cells

UID, GID = os.getuid(), os.getgid()


def test_a_job_that_comes_back_finds_an_empty_one(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs"
    (cells.make_directory("17", UID, GID, jobs) / "old").touch()
    assert list(cells.make_directory("17", UID, GID, jobs).iterdir()) == []


@pytest.mark.parametrize("kind", ["link", "file", "open"])
def test_a_place_that_a_user_has_prepared_is_refused(tmp_path: Path, kind: str) -> None:
    jobs, elsewhere = tmp_path / "jobs", tmp_path / "elsewhere"
    elsewhere.mkdir()
    if kind == "link":
        jobs.symlink_to(elsewhere)
    elif kind == "file":
        jobs.touch()
    else:
        jobs.mkdir()
        jobs.chmod(0o777)
    with pytest.raises(OSError, match="jobs"):
        cells.make_directory("17", UID, GID, jobs)
    assert list(elsewhere.iterdir()) == []


def test_what_the_prolog_has_made_is_the_job_s_and_else_it_is_made(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs"
    made = cells.make_directory("17", UID, GID, jobs)
    (made / "file").touch()
    assert cells.directory_of("17", UID, GID, jobs) == made
    assert (made / "file").exists()
    other = cells.directory_of("18", UID, GID, jobs)
    assert (other, other.stat().st_mode & 0o777) == (jobs / "18", 0o700)


def test_nothing_else_is_taken_for_the_job_s(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs"
    jobs.mkdir(mode=0o755)
    (jobs / "1").mkdir()
    (jobs / "2").symlink_to(tmp_path)
    (jobs / "3").touch()
    for job, uid in (("1", UID + 1), ("2", UID), ("3", UID)):
        with pytest.raises(PermissionError):
            cells.directory_of(job, uid, GID, jobs)
    jobs.chmod(0o777)
    with pytest.raises(PermissionError):
        cells.directory_of("4", UID, GID, jobs)
