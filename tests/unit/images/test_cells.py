"""Cells of jobs: what is mounted for one, in which order, and what becomes of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from images.common.jail_view import JailViewError
from images.worker import cells
from images.worker.cells import Cells
from tests.unit.images.cells import FakeCellMounts, cells_in

UID, GID = os.getuid(), os.getgid()


@pytest.fixture
def mounts(monkeypatch: pytest.MonkeyPatch) -> FakeCellMounts:
    return FakeCellMounts(monkeypatch)


def test_a_cell_that_cannot_be_made_whole_is_not_made_at_all(tmp_path: Path, mounts: FakeCellMounts) -> None:
    """With half of it, a job would see what is everybody's."""
    cells = cells_in(tmp_path)
    mounts.fails = "memory"

    with pytest.raises(OSError, match="not permitted"):
        cells.enter("17", UID, GID)

    assert "17" not in cells
    assert not mounts.mounted
    assert not list((tmp_path / "cells").iterdir())
    mounts.fails = ""
    assert cells.enter("17", UID, GID).is_dir()


@pytest.mark.parametrize("place", ["tmp", "dev/shm", "dev"])
def test_a_link_in_the_jail_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """Root in the jail can put one in place of a directory of the jail's own."""

    class Tricked(FakeCellMounts):
        def copy(self, tree: Path, target: int, **_: bool) -> None:
            super().copy(tree, target)
            cell = Path(f"/proc/self/fd/{target}").readlink()
            at = cell / place
            for name in ("dev/shm", "dev", "tmp"):
                if (cell / name).is_relative_to(at):
                    (cell / name).rmdir()
            at.symlink_to(outside)

        def remove(self, point: Path) -> None:
            (point / place).unlink(missing_ok=True)
            super().remove(point)

    outside = tmp_path / "outside"
    (outside / "shm").mkdir(parents=True)
    mounts = Tricked(monkeypatch)

    with pytest.raises(JailViewError, match="is a symbolic link in the jail"):
        cells_in(tmp_path).enter("17", UID, GID)

    assert not mounts.mounted


def test_a_cell_that_was_only_begun_is_made_anew(tmp_path: Path, mounts: FakeCellMounts) -> None:
    """A helper that is killed in the middle leaves one in which /tmp is everybody's."""
    cell = cells_in(tmp_path).enter("17", UID, GID)
    del mounts.mounted[f"{cell}/tmp"]

    cells = cells_in(tmp_path)

    assert not mounts.mounted
    assert not cell.exists()
    assert cells.enter("17", UID, GID) == cell
    assert len(mounts.mounted) == 3


MIB = 2**20


@pytest.mark.parametrize(
    ("memory_mib", "mib"),
    [(0, 100), (1000, 100), (64, 32), (1, 1)],
)
def test_a_job_has_no_more_shared_memory_than_its_memory_leaves(
    tmp_path: Path, mounts: FakeCellMounts, memory_mib: int, mib: float
) -> None:
    """What is in there stays when the kernel has ended the tasks: then the step could not end."""
    cells = Cells(tmp_path, 100 * MIB, cells=tmp_path / "cells", jobs=tmp_path / "jobs")
    cell = cells.enter("17", UID, GID, memory_mib)
    assert mounts.mounted[f"{cell}/dev/shm"] == f"{int(mib * MIB)} bytes"


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
