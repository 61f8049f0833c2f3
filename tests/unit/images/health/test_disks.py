"""Room on the jail and the local disks: full ones are found, and what cannot be asked is not called full or well."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from images.common.health.contract import Node, Result, Thresholds
from images.health.checks import disks
from tests.fakes.commands import FakeRunner
from tests.unit.images.health.places import make_node
from tests.unit.images.health.tables import Like, outcomes, table, words

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
    return disks.CHECK.run(node, FakeRunner(), Thresholds({"disks": limits}))


def test_jail_homes_and_local_disks_are_looked_at(tmp_path: Path, answers: dict[str, object]) -> None:
    node = replace(make_node(tmp_path), homes=tmp_path / "homes")
    result = check(node)
    assert words(result) == "ok"
    assert result.values[f'disk_used_ratio{{path="{node.jail}"}}'] == 0.5
    assert result.values[f'disk_inodes_used_ratio{{path="{node.root}"}}'] == 0.1
    assert check(node, fail_percent=40).status == "fail", "a site sets its own limits"
    answers["homes"] = figures(free=5)
    assert words(check(node)).startswith(f"fail [node]: {node.homes}: 95 %")
    answers["jail"] = BROKEN
    assert check(make_node(tmp_path, jail=None)).status == "ok"


@table(
    "told, expected",
    {
        "89 % used": ({"jail": figures(free=11)}, "ok"),
        "90 % used": ({"jail": figures(free=10)}, "warn [node]: .../jail: 90 % of the space used, 95 % allowed"),
        "94 % used": ({"jail": figures(free=6)}, "warn [node]: .../jail: 94 % of the space used, 95 % allowed"),
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
        "more free than there is": ({"root": figures(size=1, free=5)}, "not checked: ..."),
        "inodes without a number": ({"root": figures(inodes=0, inodes_free=2**32)}, "ok"),
    },
)
def test_full_disks_are_told_and_then_a_fault(
    tmp_path: Path, answers: dict[str, object], told: Answers, expected: str
) -> None:
    answers |= told
    assert words(check(make_node(tmp_path))) == Like(expected)


@outcomes(
    "number",
    [
        ("fail [hardware]: cannot write to ...: Read-only file system...", errno.EROFS),
        ("fail [hardware]: ...", errno.EIO),
        ("fail [node]: ...", errno.ENOSPC),
        ("not checked: ...", errno.EACCES),
        ("ok", errno.EOPNOTSUPP),
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
    limits = dict.fromkeys(("warn_percent", "fail_percent", "warn_inodes_percent", "fail_inodes_percent"), 101)
    assert words(check(make_node(tmp_path), **limits)) == "ok"
    assert check(make_node(tmp_path, local_disks=(tmp_path / "absent",))).status == "not checked"
    (tmp_path / "tried").mkdir()
    assert disks.try_to_write(tmp_path / "tried").status == "ok"
    assert not list((tmp_path / "tried").iterdir())
