"""Disks and the jail: full ones are found, slow ones after a while, and broken is not the same as unknown."""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from images.common.health.contract import Node, Result, ok
from images.health.checks import disks, filesystem
from tests.fakes.commands import FakeRunner
from tests.unit.images.health.places import Like, make_node, outcomes, table, words, write

Answers = Mapping[str, os.statvfs_result | OSError]

GIB_BLOCKS = 2**30 // 4096
BROKEN = OSError(errno.EIO, "Input/output error")


def figures(
    *, size: int = 100, free: int = 50, for_users: int | None = None, inodes: int = 1000, inodes_free: int = 900
) -> os.statvfs_result:
    """Answer of statvfs(2); sizes in GiB."""
    available = free if for_users is None else for_users
    blocks = [count * GIB_BLOCKS for count in (size, free, available)]
    return os.statvfs_result((4096, 4096, *blocks, inodes, inodes_free, inodes_free, 0, 255))


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> dict[str, os.statvfs_result | OSError]:
    """What statvfs answers, by the last part of the path; all others are half empty."""
    told: dict[str, os.statvfs_result | OSError] = {}

    def statvfs(path: Path) -> os.statvfs_result:
        found = told.get(path.name, figures())
        if isinstance(found, OSError):
            raise found
        return found

    monkeypatch.setattr(os, "statvfs", statvfs)
    return told


def check(node: Node, **limits: float) -> Result:
    return disks.run(replace(node, limits={"disks": limits}), FakeRunner())


@table(
    "told, expected",
    {
        "half empty ones": ({}, "ok"),
        "homes on a volume of their own": ({"homes": figures(free=5)}, "fail [node]: .../homes: 95 % ..."),
        "89 % used": ({"jail": figures(free=11)}, "ok"),
        "90 % used": ({"jail": figures(free=10)}, "warn [node]: .../jail: 90 % of the space used, 95 % allowed"),
        "95 % used": ({"jail": figures(free=5)}, "fail [node]: .../jail: 95 % of the space used, 95 % allowed"),
        "80 of 85 that users may have": ({"root": figures(free=20, for_users=5)}, "warn [node]: .../root: 94 % ..."),
        "no inodes left": (
            {"root": figures(inodes_free=50)},
            "fail [node]: .../root: 95 % of the inodes used, 95 % allowed",
        ),
        "a few percent of a huge one": ({"jail": figures(size=100_000, free=3_000)}, "ok"),
        "a full huge one": ({"jail": figures(size=100_000, free=150)}, "fail ..."),
        "no answer": ({"jail": BROKEN}, "not checked: .../jail: Input/output error"),
        "no answer hides no other": ({"jail": BROKEN, "root": figures(free=1)}, "fail ..."),
        "nothing at all": ({"root": figures(size=0, free=0)}, "not checked: .../root: the file system tells no size"),
        "inodes without a number": ({"root": figures(inodes=0, inodes_free=2**32)}, "ok"),
    },
)
def test_full_disks_are_told_and_then_a_fault(
    tmp_path: Path, answers: dict[str, object], told: Answers, expected: str
) -> None:
    answers |= told
    assert words(check(make_node(tmp_path, homes=tmp_path / "homes"))) == Like(expected)


@outcomes(
    "number",
    [
        ("fail [hardware]: cannot write to ...: Read-only file system...", errno.EROFS),
        ("fail [hardware]: ...", errno.EIO),
        ("fail [node]: ...", errno.ENOSPC),
        ("not checked: ...", errno.EACCES),
    ],
)
@pytest.mark.usefixtures("answers")
def test_a_disk_that_refuses_writing_is_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expected: str, number: int
) -> None:
    def refuse(*_: object, **__: object) -> int:
        raise OSError(number, os.strerror(number))

    node = make_node(tmp_path)
    monkeypatch.setattr(os, "open", refuse)
    assert words(check(node)) == Like(expected)


def test_the_real_kernel_is_understood_and_trying_to_write_leaves_nothing(tmp_path: Path) -> None:
    limits = {"warn_percent": 101, "fail_percent": 101}
    assert words(check(make_node(tmp_path), **limits)) == "ok"
    (tmp_path / "tried").mkdir()
    assert disks.try_to_write(tmp_path / "tried").status == "ok"
    assert not list((tmp_path / "tried").iterdir())


QUICK = (0.001, 0.01, 0.001)
SLOW = (0.1, 3.0, 0.1)
OURS = ".slurmstack/health"


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the clock shows, one look after the other; the last one stays."""
    told = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: told.pop(0) if len(told) > 1 else told[0])
    return told


def try_jail(
    node: Node, reads: list[float], took: tuple[float, ...] = QUICK, *, at: float = 1000.0, **limits: float
) -> Result:
    """Run it; `took`: seconds of write, sync and remove. After them the clock shows `at`."""
    reads[:] = [0.0, *itertools.accumulate(took), at]
    return filesystem.run(replace(node, limits={"filesystem": limits}), FakeRunner())


def test_each_operation_is_timed_and_counts(tmp_path: Path, reads: list[float]) -> None:
    result = try_jail(make_node(tmp_path), reads, (0.25, 0.25, 0.125))
    assert words(result) == "ok"
    assert result.values['filesystem_seconds{operation="remove"}'] == 0.125
    for operation in ("write", "sync", "remove"):
        took = tuple(0.75 if name == operation else 0.0 for name in ("write", "sync", "remove"))
        assert words(try_jail(make_node(tmp_path), reads, took)) == f"warn [node]: slow: {operation} 0.8 s, 2 s allowed"
    assert try_jail(make_node(tmp_path), reads, fail_seconds=0.005).status == "warn", "a site's own limit"
    assert try_jail(make_node(tmp_path, jail=None), reads) == ok()


def test_it_leaves_an_empty_directory_that_only_root_sees(tmp_path: Path, reads: list[float]) -> None:
    node = make_node(tmp_path)
    assert node.jail
    assert try_jail(node, reads).status == "ok"
    assert (node.jail / OURS).stat().st_mode & 0o777 == 0o700
    write(node.jail / OURS / "probe-w-0", "left by a run that was killed")
    assert try_jail(node, reads).status == "ok"
    assert not list((node.jail / OURS).iterdir())


def test_a_slow_minute_is_a_fault_and_a_quick_run_in_between_begins_anew(tmp_path: Path, reads: list[float]) -> None:
    for runs, statuses in (
        ((SLOW, SLOW, SLOW), ["warn", "warn", "fail"]),
        ((SLOW, QUICK, SLOW), ["warn", "ok", "warn"]),
    ):
        node = make_node(tmp_path, state=tmp_path / statuses[1])
        found = [try_jail(node, reads, took, at=1000.0 + 30 * run) for run, took in enumerate(runs)]
        assert [result.status for result in found] == statuses


@outcomes(
    "number",
    [("fail [node]", errno.EIO), ("fail [node]", errno.ESTALE), ("not checked", errno.EACCES)],  # perhaps our own fault
)
def test_a_broken_file_system_is_a_fault(
    tmp_path: Path, reads: list[float], monkeypatch: pytest.MonkeyPatch, expected: str, number: int
) -> None:
    def fsync(_file: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fsync)
    assert words(try_jail(make_node(tmp_path), reads)) == f"{expected}: {tmp_path}/jail: {os.strerror(number)}"


def test_an_empty_mount_point_is_not_checked_and_stays_empty(tmp_path: Path, reads: list[float]) -> None:
    """Where the shared volume is not mounted, nothing is written to the machine's own disk."""
    (tmp_path / "empty").mkdir()
    assert try_jail(make_node(tmp_path, jail=tmp_path / "empty"), reads).status == "not checked"
    assert not list((tmp_path / "empty").iterdir())


@pytest.mark.parametrize("link", [OURS, f"{OURS}/probe-w-0"])
def test_root_follows_no_link_of_a_user(tmp_path: Path, reads: list[float], link: str) -> None:
    node, target = make_node(tmp_path), tmp_path / "target"
    assert node.jail
    precious = target if link.endswith("w-0") else target / "precious"
    write(precious, "precious")
    (node.jail / link).parent.mkdir(parents=True, exist_ok=True)
    (node.jail / link).symlink_to(target)
    assert try_jail(node, reads).status == "not checked"
    assert precious.read_text() == "precious"
    assert target == precious or list(target.iterdir()) == [precious]
