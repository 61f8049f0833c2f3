"""The jail's speed: one slow moment is told, minutes of it are a fault, and broken is not the same as unknown."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from images.health.checks import filesystem
from images.health.contract import Node, Result, Status, Thresholds
from images.health.probe_directory import open_probe_directory
from tests.unit.images.fakes import FakeRunner
from tests.unit.images.health.places import make_node


class Times:
    """A clock by which the four operations take what they are told, and which then shows `at`."""

    def __init__(self, at: float, *took: float) -> None:
        self.reads: Iterator[float] = iter([moment for seconds in took for moment in (0.0, seconds)])
        self.at = at

    def __call__(self) -> float:
        return next(self.reads, self.at)


def check(node: Node, *took: float, at: float = 1000.0, **thresholds: float) -> Result:
    """Run it; `took`: seconds of write, sync, rename and list."""
    clock = Times(at, *(took or (0.001, 0.01, 0.001, 0.001)))
    return filesystem.run(node, FakeRunner(), Thresholds({"filesystem": thresholds}), clock=clock)


def test_a_quick_jail_is_well(tmp_path: Path) -> None:
    result = check(make_node(tmp_path), 0.25, 0.5 - 0.25, 0.125, 0.0625)

    assert (result.status, result.message) == (Status.OK, "")
    assert result.values == {
        'filesystem_seconds{operation="write"}': 0.25,
        'filesystem_seconds{operation="sync"}': 0.25,
        'filesystem_seconds{operation="rename"}': 0.125,
        'filesystem_seconds{operation="list"}': 0.0625,
    }


def test_it_leaves_an_empty_directory_that_only_root_sees(tmp_path: Path) -> None:
    node = make_node(tmp_path)
    assert node.jail

    for _ in range(2):
        assert filesystem.CHECK.run(node, FakeRunner(), Thresholds()).status is not Status.NOT_CHECKED

    directory = node.jail / ".slurmstack/health/w-0"
    assert not list(directory.iterdir())
    assert directory.stat().st_mode & 0o777 == 0o700


def test_what_a_killed_run_has_left_does_not_matter(tmp_path: Path) -> None:
    node = make_node(tmp_path)
    assert node.jail
    directory = node.jail / ".slurmstack/health/w-0"
    directory.mkdir(parents=True)
    for name in ("new", "done"):
        (directory / name).write_text("left")

    assert check(node).status is Status.OK
    assert not list(directory.iterdir())


@pytest.mark.parametrize("operation", range(4))
def test_each_operation_counts(tmp_path: Path, operation: int) -> None:
    took = [0.001] * 4
    took[operation] = 0.75

    result = check(make_node(tmp_path), *took)

    name = ["write", "sync", "rename", "list"][operation]
    assert (result.status, result.fault) == (Status.WARN, "node")
    assert result.message == f"slow: {name} 0.8 s, 2 s allowed"


def test_a_slow_moment_is_told_and_a_slow_minute_is_a_fault(tmp_path: Path) -> None:
    node = make_node(tmp_path)

    found = [check(node, 0.1, 3.0, 0.1, 0.1, at=1000.0 + 30 * run) for run in range(3)]

    assert [result.status for result in found] == [Status.WARN, Status.WARN, Status.FAIL]
    assert found[-1].message == "slow: sync 3.0 s, 2 s allowed, for 60 s now"


def test_a_quick_run_in_between_begins_anew(tmp_path: Path) -> None:
    node = make_node(tmp_path)
    check(node, 0.1, 3.0, 0.1, 0.1, at=1000.0)
    check(node, 0.1, 0.1, 0.1, 0.1, at=1030.0)

    assert check(node, 0.1, 3.0, 0.1, 0.1, at=1060.0).status is Status.WARN


def test_a_site_sets_its_own_limits(tmp_path: Path) -> None:
    assert check(make_node(tmp_path), fail_seconds=0.005, persists_seconds=0).status is Status.FAIL


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Let syncing fail with an error of this number."""

    def prepare(number: int) -> None:
        def fsync(_file: int) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(os, "fsync", fsync)

    return prepare


@pytest.mark.parametrize("number", [errno.EIO, errno.EROFS, errno.ESTALE, errno.ENOTCONN, errno.ENOSPC])
def test_a_broken_file_system_is_a_fault(tmp_path: Path, refuse: Callable[[int], None], number: int) -> None:
    node = make_node(tmp_path)
    refuse(number)

    result = check(node)

    assert (result.status, result.fault) == (Status.FAIL, "node")
    assert result.message == f"{node.jail}: {os.strerror(number)}"


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EINTR, errno.ENOSYS])
def test_what_is_perhaps_our_own_fault_is_not_checked(
    tmp_path: Path, refuse: Callable[[int], None], number: int
) -> None:
    refuse(number)

    assert check(make_node(tmp_path)).status is Status.NOT_CHECKED


def test_a_file_that_is_not_listed_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "listdir", lambda _directory: ["another"])

    assert check(make_node(tmp_path)).status is Status.FAIL


def test_an_empty_mount_point_is_not_checked_and_stays_empty(tmp_path: Path) -> None:
    """Where the shared volume is not mounted, nothing is written to the machine's own disk."""
    empty = tmp_path / "empty"
    empty.mkdir()

    assert check(make_node(tmp_path, jail=empty)).status is Status.NOT_CHECKED
    assert not list(empty.iterdir())


def test_a_pool_without_a_jail_has_nothing_that_is_slow(tmp_path: Path) -> None:
    result = check(make_node(tmp_path, jail=None))

    assert (result.status, result.values) == (Status.OK, {})


@pytest.mark.parametrize("link", [".slurmstack/health", ".slurmstack/health/w-0", ".slurmstack/health/w-0/new"])
def test_root_follows_no_link_of_a_user(tmp_path: Path, link: str) -> None:
    node = make_node(tmp_path)
    assert node.jail
    target = tmp_path / "target"
    if link.endswith("new"):
        target.write_text("precious")
    else:
        target.mkdir()
    (node.jail / link).parent.mkdir(parents=True, exist_ok=True)
    (node.jail / link).symlink_to(target)

    assert check(node).status is Status.NOT_CHECKED
    assert target.read_text() == "precious" if target.is_file() else not list(target.iterdir())


@pytest.mark.parametrize("name", ["", "..", "../../etc"])
def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="no node's name"):
        open_probe_directory(make_node(tmp_path).jail or tmp_path, name)


def test_another_node_that_makes_the_directory_at_the_same_time_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mkdir = os.mkdir

    def slower(path: str, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        mkdir(path, mode, dir_fd=dir_fd)
        mkdir(path, mode, dir_fd=dir_fd)

    node = make_node(tmp_path)
    monkeypatch.setattr(os, "mkdir", slower)

    assert check(node).status is Status.OK
