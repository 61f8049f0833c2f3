"""What a user has left on a node goes, and nothing else does."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from images.common.steps import is_step
from images.health import leftovers
from images.health.leftovers import Moment, has_files, ipc_objects, left_processes, remove_files
from tests.unit.images.health.processes import add_process
from tests.unit.images.health.tables import table

UID = os.getuid()
OTHER = UID + 1
LATER = Moment(seconds=time.time() + 3600, ticks=float("inf"))
AT_9000 = Moment(seconds=9000.5, ticks=0.0)
EARLIER = Moment(seconds=0.0, ticks=0.0)

SHM = """       key      shmid perms       size  cpid  lpid nattch   uid   gid  cuid  cgid  ctime
         0          5   600       4096   123   123      0  1000  1000  1000  1000   1000
         0          6   600       4096   123   123      1  1000  1000  1000  1000   1000
         0          7   600       4096   123   123      0  1001  1001  1001  1001   1000
         0          8   600       4096   123   123      0  5432  1000  1000  1000   9000
         0          9   600       4096   123   123      0  1000  1000  1000  1000   9999
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    place = tmp_path / "tmp"
    (place / "mine/deep").mkdir(parents=True)
    (place / "mine/deep/file").touch()
    (place / "file").touch()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/precious").touch()
    (place / "link").symlink_to(tmp_path / "outside")
    return place


def test_the_users_files_go_and_links_are_not_followed(place: Path, tmp_path: Path) -> None:
    assert has_files(UID, (place,))
    assert remove_files(UID, LATER, (place, tmp_path / "none")) == 5
    assert list(place.iterdir()) == []
    assert not has_files(UID, (place,))
    assert (tmp_path / "outside/precious").exists()


@table("user, until", {"those of others": (OTHER, LATER), "those that came later": (UID, EARLIER)})
def test_files_that_stay(place: Path, user: int, until: Moment) -> None:
    assert has_files(user, (place,)) is (user == UID)
    assert remove_files(user, until, (place,)) == 0
    assert len(list(place.rglob("*"))) == 5


def test_a_directory_with_something_that_stays_in_it_stays(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    takes, deep = leftovers._Removal.takes, (place / "mine/deep/file").stat().st_ino
    monkeypatch.setattr(
        leftovers._Removal, "takes", lambda removal, status: status.st_ino != deep and takes(removal, status)
    )
    assert remove_files(UID, LATER, (place,)) == 2
    assert (place / "mine/deep/file").exists()


def test_a_directory_that_another_has_put_in_place_meanwhile_is_not_entered(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fstat = os.fstat

    def anothers(descriptor: int) -> os.stat_result:
        found = list(fstat(descriptor))
        found[4] = OTHER if found[1] == (place / "mine").stat().st_ino else found[4]
        return os.stat_result(found)

    monkeypatch.setattr(os, "fstat", anothers)
    remove_files(UID, LATER, (place,))
    assert (place / "mine/deep/file").exists()
    assert not (place / "file").exists()


def test_a_link_in_place_of_the_directory_itself_leads_nowhere(place: Path, tmp_path: Path) -> None:
    assert leftovers.remove_tree(place / "link") == 0
    assert remove_files(UID, LATER, (place / "link",)) == 0
    assert (tmp_path / "outside/precious").exists()


def make_deep(place: Path, levels: int) -> Path:
    """The innermost of so many directories, one in the other."""
    path = place.joinpath(*["d"] * levels)
    path.mkdir(parents=True)
    return path


@table("whose", {"the user's files": "user", "a job's directory": "job"})
def test_directories_go_however_deep_they_are(tmp_path: Path, whose: str) -> None:
    place = tmp_path / "tmp"
    path = make_deep(place, 200)
    (path / "file").touch()
    if whose == "user":
        assert remove_files(UID, LATER, (place,)) == 201
        assert list(place.iterdir()) == []
    else:
        assert leftovers.remove_tree(place) == 201
        assert not place.exists()


def test_what_stays_stays_at_any_depth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "tmp"
    path = make_deep(place, 100)
    (path / "newer").touch()
    (path / "older").touch()
    takes, newer = leftovers._Removal.takes, (path / "newer").stat().st_ino
    monkeypatch.setattr(
        leftovers._Removal, "takes", lambda removal, status: status.st_ino != newer and takes(removal, status)
    )
    remove_files(UID, LATER, (place,))
    assert [found.name for found in place.rglob("*") if found.is_file()] == ["newer"]


def test_a_place_with_too_many_entries_may_hold_something(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        (tmp_path / str(number)).touch()
    assert not has_files(OTHER, (tmp_path,))
    monkeypatch.setattr(leftovers, "_MOST_ENTRIES", 3)
    assert has_files(OTHER, (tmp_path,))


def test_root_is_never_swept() -> None:
    with pytest.raises(ValueError, match="the system's"):
        leftovers.sweep(0)


def test_processes_of_the_user_outside_of_steps_are_left_ones(tmp_path: Path) -> None:
    proc = tmp_path / "proc"
    add_process(proc, 1, comm="tini", uid=0)
    add_process(proc, 20, comm="daemon", uid=1000)
    add_process(proc, 21, comm="other", uid=1001)
    add_process(proc, 22, comm="dead", uid=1000, state="Z")
    add_process(proc, 23, comm="headless", uid=1000, state="Z", threads=2)
    add_process(proc, 24, comm="slurmstepd", title="slurmstepd: [1.batch]", uid=1000)
    add_process(proc, 25, comm="child", uid=1000, parent=24)
    add_process(proc, 30, comm="slurmstepd", uid=0)
    add_process(proc, 31, comm="shell", uid=1000, parent=30)
    add_process(proc, 32, comm="python", uid=1000, parent=31)
    left = {found.comm for found in left_processes(1000, LATER, proc)}
    assert left == {"daemon", "headless", "slurmstepd", "child"}
    assert left_processes(1000, EARLIER, proc) == []


def test_each_process_is_asked_once_however_deep_a_user_nests_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proc = tmp_path / "proc"
    add_process(proc, 10, comm="slurmstepd", uid=0)
    for first in (100, 300):
        for pid in range(first, first + 100):
            add_process(proc, pid, parent=pid - 1 if pid > first else {100: 10, 300: 1}[first])
    asked: list[int] = []

    def ask(pid: int, root: Path) -> bool:
        asked.append(pid)
        return is_step(pid, root)

    monkeypatch.setattr(leftovers, "is_step", ask)
    assert {found.pid for found in left_processes(1000, LATER, proc)} == set(range(300, 400))
    assert len(asked) == len(set(asked))


def test_objects_of_system_v_that_nobody_uses_are_found(tmp_path: Path) -> None:
    (tmp_path / "sysvipc").mkdir()
    (tmp_path / "sysvipc/shm").write_text(SHM)
    assert list(ipc_objects(1000, AT_9000, tmp_path)) == [("shm", 5), ("shm", 8)], "one was given away"
    assert list(ipc_objects(1002, AT_9000, tmp_path)) == []
    assert list(ipc_objects(1000, AT_9000, tmp_path / "none")) == []
