"""The jail's speed: one slow moment is told, minutes of it are a fault, and broken is not the same as unknown."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from images.common.health.contract import Node, Result, Thresholds
from images.health.checks import filesystem
from images.health.verdict import ok
from tests.fakes.commands import FakeRunner
from tests.unit.images.health.places import make_node, write
from tests.unit.images.health.tables import outcomes, table, words

QUICK = (0.001, 0.01, 0.001, 0.001)
SLOW = (0.1, 3.0, 0.1, 0.1)
OURS = ".slurmstack/health/w-0"


def check(node: Node, took: tuple[float, ...] = QUICK, *, at: float = 1000.0, **limits: float) -> Result:
    """Run it; `took`: seconds of write, sync, rename and list. After them the clock shows `at`."""
    reads = iter([moment for seconds in took for moment in (0.0, seconds)])
    clock = lambda: next(reads, at)  # noqa: E731
    return filesystem.run(node, FakeRunner(), Thresholds({"filesystem": limits}), clock=clock)


def test_each_operation_is_timed_and_counts(tmp_path: Path) -> None:
    result = check(make_node(tmp_path), (0.25, 0.25, 0.125, 0.0625))
    assert words(result) == "ok"
    assert result.values['filesystem_seconds{operation="rename"}'] == 0.125
    for operation in ("write", "sync", "rename", "list"):
        took = tuple(0.75 if name == operation else 0.001 for name in ("write", "sync", "rename", "list"))
        assert words(check(make_node(tmp_path), took)) == f"warn [node]: slow: {operation} 0.8 s, 2 s allowed"
    assert check(make_node(tmp_path), fail_seconds=0.005, persists_seconds=0).status == "fail", "a site's own limits"
    assert check(make_node(tmp_path, jail=None)) == ok()


def test_it_leaves_an_empty_directory_that_only_root_sees(tmp_path: Path) -> None:
    node = make_node(tmp_path)
    assert node.jail
    assert check(node).status == "ok"
    assert (node.jail / OURS).stat().st_mode & 0o777 == 0o700
    for name in ("new", "done"):  # of a run that was killed
        write(node.jail / OURS / name, "left")
    assert check(node).status == "ok"
    assert not list((node.jail / OURS).iterdir())


@table(
    "runs, statuses",
    {
        "a slow minute is a fault": ((SLOW, SLOW, SLOW), ["warn", "warn", "fail"]),
        "a quick run in between begins anew": ((SLOW, QUICK, SLOW), ["warn", "ok", "warn"]),
    },
)
def test_a_slow_moment_is_told(tmp_path: Path, runs: tuple[tuple[float, ...], ...], statuses: list[str]) -> None:
    node = make_node(tmp_path)
    found = [check(node, took, at=1000.0 + 30 * run) for run, took in enumerate(runs)]
    assert [result.status for result in found] == statuses
    if "fail" in statuses:
        assert words(found[-1]) == "fail [node]: slow: sync 3.0 s, 2 s allowed, for 60 s now"


@outcomes(
    "numbers",
    [
        ("fail [node]", [errno.EIO, errno.EROFS, errno.ESTALE, errno.ENOSPC]),
        ("not checked", [errno.EACCES, errno.EINTR]),  # perhaps our own fault
    ],
)
def test_a_broken_file_system_is_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expected: str, numbers: list[int]
) -> None:
    def fsync(_file: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fsync)
    for number in numbers:
        said = words(check(make_node(tmp_path)))
        assert said.startswith(f"{expected}: ")
        assert expected == "not checked" or said == f"{expected}: {tmp_path}/jail: {os.strerror(number)}"


def test_an_empty_mount_point_is_not_checked_and_stays_empty(tmp_path: Path) -> None:
    """Where the shared volume is not mounted, nothing is written to the machine's own disk."""
    (tmp_path / "empty").mkdir()
    assert check(make_node(tmp_path, jail=tmp_path / "empty")).status == "not checked"
    assert not list((tmp_path / "empty").iterdir())


@pytest.mark.parametrize("link", [".slurmstack/health", OURS, f"{OURS}/new"])
def test_root_follows_no_link_of_a_user(tmp_path: Path, link: str) -> None:
    node, target = make_node(tmp_path), tmp_path / "target"
    assert node.jail
    precious = target if link.endswith("new") else target / "precious"
    write(precious, "precious")
    (node.jail / link).parent.mkdir(parents=True, exist_ok=True)
    (node.jail / link).symlink_to(target)
    assert check(node).status == "not checked"
    assert precious.read_text() == "precious"
    assert target == precious or list(target.iterdir()) == [precious]


def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    for name in ("", "..", "../../etc"):
        with pytest.raises(ValueError, match="no node's name"):
            check(make_node(tmp_path, name=name))
