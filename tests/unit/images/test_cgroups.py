"""The container's part of the machine's cgroups: where it cannot be taken (tests/machine shows what is made of it)."""

from __future__ import annotations

from pathlib import Path

import pytest

from images.common.cgroups import CannotConfineError, memory_limit, take_subtree
from images.common.command import Result
from tests.fakes.commands import FakeRunner

REMOUNT = "mount -o remount,bind,rw"
IN_NAMESPACE = "0::/"
ALL = "cpuset cpu io memory hugetlb pids rdma misc"


def refused(
    tmp_path: Path, filesystems: tuple[str, ...] = ("cgroup2",), place: str = IN_NAMESPACE, controllers: str = ALL
) -> tuple[str, list[str]]:
    """Why it cannot be taken, and what was run for it."""
    mount, proc = tmp_path / "cgroup", tmp_path / "proc"
    for directory in (mount, proc):
        directory.mkdir()
    (mount / "cgroup.controllers").write_text(controllers)
    (proc / "cgroup").write_text(f"{place}\n")
    lines = [f"30 22 0:26 / {mount} rw - {filesystem} cgroup rw\n" for filesystem in filesystems]
    (proc / "mountinfo").write_text("22 1 0:2 / / rw - ext4 /dev/vda rw\n" + "".join(lines))
    runner = FakeRunner({REMOUNT: Result(code=32, stderr="mount: permission denied")})
    with pytest.raises(CannotConfineError) as error:
        take_subtree("slurmd", "system.slice/x", 2**30, runner, mount=mount, proc=proc, is_read_only=lambda _: True)
    assert [path.name for path in mount.iterdir()] == ["cgroup.controllers"], "nothing was made"
    return str(error.value), runner.commands


@pytest.mark.parametrize("filesystems", [("tmpfs",), (), ("cgroup2", "cgroup")])
def test_version_1_offers_nothing(tmp_path: Path, filesystems: tuple[str, ...]) -> None:
    why, commands = refused(tmp_path, filesystems)
    assert "version 1 of cgroups" in why
    assert not commands


@pytest.mark.parametrize("place", ["0::/kubepods.slice/pod1.slice/cri-1.scope", "12:cpu:/\n0::/"])
def test_without_a_namespace_the_machine_s_own_tree_is_left_alone(tmp_path: Path, place: str) -> None:
    why, commands = refused(tmp_path, place=place)
    assert "no cgroup namespace" in why
    assert not commands


def test_the_container_s_own_limit(tmp_path: Path) -> None:
    assert memory_limit(tmp_path) is None, "version 1"
    for text, limit in (("8589934592", 2**33), ("max", None)):
        (tmp_path / "memory.max").write_text(f"{text}\n")
        assert memory_limit(tmp_path) == limit
