"""Room on the jail and the local disks: full ones are found, and what cannot be asked is not called full or well."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from images.health.checks import disks
from images.health.contract import Node, Result, Status, Thresholds
from tests.unit.images.fakes import FakeRunner
from tests.unit.images.health.places import make_node

GIB_BLOCKS = 2**30 // 4096


def figures(
    *, size: int = 100, free: int = 50, for_users: int | None = None, inodes: int = 1000, inodes_free: int = 900
) -> os.statvfs_result:
    """Answer of statvfs(2); sizes in GiB."""
    available = free if for_users is None else for_users
    blocks = [count * GIB_BLOCKS for count in (size, free, available)]
    return os.statvfs_result((4096, 4096, *blocks, inodes, inodes_free, inodes_free, 0, 255))


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path, os.statvfs_result | OSError], None]:
    """Say what statvfs answers for a path; all others are half empty."""
    answers: dict[str, os.statvfs_result | OSError] = {}

    def statvfs(path: Path) -> os.statvfs_result:
        found = answers.get(str(path), figures())
        if isinstance(found, OSError):
            raise found
        return found

    def say(path: Path, what: os.statvfs_result | OSError) -> None:
        answers[str(path)] = what

    monkeypatch.setattr(os, "statvfs", statvfs)
    return say


Say = Callable[[Path, "os.statvfs_result | OSError"], None]


def check(node: Node, **thresholds: float) -> Result:
    return disks.CHECK.run(node, FakeRunner(), Thresholds({"disks": thresholds}))


def test_half_empty_disks_are_well(tmp_path: Path, answer: Say) -> None:
    node = make_node(tmp_path)

    result = check(node)

    assert (result.status, result.message) == (Status.OK, "")
    assert result.values[f'disk_used_ratio{{path="{node.jail}"}}'] == 0.5
    assert result.values[f'disk_inodes_used_ratio{{path="{node.root}"}}'] == 0.1


def test_the_real_kernel_is_understood(tmp_path: Path) -> None:
    node = make_node(tmp_path)

    result = check(node, warn_percent=101, fail_percent=101, warn_inodes_percent=101, fail_inodes_percent=101)

    assert result.status is Status.OK
    assert 0 < result.values[f'disk_used_ratio{{path="{node.jail}"}}'] <= 1


@pytest.mark.parametrize(("free", "status"), [(11, Status.OK), (10, Status.WARN), (6, Status.WARN), (5, Status.FAIL)])
def test_a_full_jail_is_told_and_then_a_fault(tmp_path: Path, answer: Say, free: int, status: Status) -> None:
    node = make_node(tmp_path)
    assert node.jail
    answer(node.jail, figures(free=free))

    result = check(node)

    assert result.status is status
    assert result.fault == (None if status is Status.OK else "node")
    if status is Status.FAIL:
        assert result.message == f"{node.jail}: 95 % of the space used, 95 % allowed"


def test_what_is_kept_for_root_is_not_free(tmp_path: Path, answer: Say) -> None:
    node = make_node(tmp_path)
    answer(node.root, figures(free=20, for_users=5))  # 80 used of 85 that users may have

    result = check(node)

    assert result.status is Status.WARN
    assert result.values[f'disk_used_ratio{{path="{node.root}"}}'] == pytest.approx(80 / 85)


def test_used_up_inodes_are_a_fault_on_a_disk_with_room(tmp_path: Path, answer: Say) -> None:
    node = make_node(tmp_path)
    answer(node.root, figures(inodes_free=50))

    result = check(node)

    assert result.status is Status.FAIL
    assert result.message == f"{node.root}: 95 % of the inodes used, 95 % allowed"


@pytest.mark.parametrize(("inodes", "free"), [(0, 0), (0, 2**32), (100, 500)])
def test_inodes_without_a_number_are_no_fault(tmp_path: Path, answer: Say, inodes: int, free: int) -> None:
    node = make_node(tmp_path)
    answer(node.root, figures(inodes=inodes, inodes_free=free))

    result = check(node)

    assert result.status is Status.OK
    assert f'disk_inodes_used_ratio{{path="{node.root}"}}' not in result.values


def test_a_few_percent_of_a_huge_file_system_are_enough(tmp_path: Path, answer: Say) -> None:
    node = make_node(tmp_path)
    assert node.jail
    answer(node.jail, figures(size=100_000, free=3_000))
    assert check(node).status is Status.OK

    answer(node.jail, figures(size=100_000, free=150))
    assert check(node).status is Status.FAIL


def test_a_site_sets_its_own_limits(tmp_path: Path, answer: Say) -> None:
    assert check(make_node(tmp_path), fail_percent=40).status is Status.FAIL


def test_a_disk_that_does_not_answer_is_not_checked_and_hides_no_other(tmp_path: Path, answer: Say) -> None:
    node = make_node(tmp_path)
    assert node.jail
    answer(node.jail, OSError(errno.EIO, "Input/output error"))

    result = check(node)
    assert (result.status, result.message) == (Status.NOT_CHECKED, f"{node.jail}: Input/output error")

    answer(node.root, figures(free=1))
    assert check(node).status is Status.FAIL


def test_a_path_that_is_not_there_is_not_checked(tmp_path: Path) -> None:
    node = make_node(tmp_path, local_disks=(tmp_path / "absent",))

    assert check(node).status is Status.NOT_CHECKED


def test_figures_that_make_no_sense_are_not_checked(tmp_path: Path, answer: Say) -> None:
    node = make_node(tmp_path)
    for nonsense in (figures(size=0, free=0), figures(size=1, free=5)):
        answer(node.root, nonsense)

        assert check(node).status is Status.NOT_CHECKED


def test_a_pool_without_a_jail_is_checked_without_it(tmp_path: Path, answer: Say) -> None:
    assert check(make_node(tmp_path, jail=None)).status is Status.OK


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (errno.EROFS, (Status.FAIL, "hardware")),
        (errno.EIO, (Status.FAIL, "hardware")),
        (errno.ENOSPC, (Status.FAIL, "node")),
        (errno.EACCES, (Status.NOT_CHECKED, None)),
        (errno.EOPNOTSUPP, (Status.OK, None)),
    ],
)
@pytest.mark.usefixtures("answer")
def test_a_disk_that_refuses_writing_is_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, expected: tuple[Status, str | None]
) -> None:
    def refuse(*_: object, **__: object) -> int:
        raise OSError(number, os.strerror(number))

    node = make_node(tmp_path)
    monkeypatch.setattr(os, "open", refuse)

    result = check(node)

    assert (result.status, result.fault) == expected


def test_trying_to_write_leaves_nothing(tmp_path: Path) -> None:
    tmp = tmp_path / "root/tmp"
    tmp.mkdir(parents=True)

    assert disks.try_to_write(tmp).status is Status.OK
    assert not list(tmp.iterdir())
