"""The container's part of the machine's cgroups: what is made of it, and where it cannot be taken."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from images.common.cgroups import CannotConfineError, Subtree, memory_limit, take_subtree
from images.common.command import Result
from tests.fakes.commands import FakeRunner

ALL = "cpuset cpu io memory hugetlb pids rdma misc"
REMOUNT = "mount -o remount,bind,rw"
JOBS = "system.slice/w-0_slurmstepd.scope"


class Machine:
    """A container's cgroups in a directory, in which processes move as the kernel moves them (tests/machine has it)."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.mount, self.proc = directory / "cgroup", directory / "proc"
        self.read_only = True
        self.arriving: list[str] = []
        """Processes that appear at each look."""
        self.gone: set[str] = set()
        """Processes that have ended when they are to be moved."""
        self.runner = FakeRunner({REMOUNT: self._remount})
        self._mkdir, self._write, self._read = Path.mkdir, Path.write_text, Path.read_text
        for name, does in (("mkdir", self.mkdir), ("write_text", self.write), ("read_text", self.read)):
            monkeypatch.setattr(Path, name, lambda path, *args, does=does, **named: does(path, *args, **named))
        self.proc.mkdir()
        self.mkdir(self.mount)
        self.set(self.mount, "cgroup.procs", "1 17 18")
        self.be_in("0::/")
        self.have("cgroup2")

    def be_in(self, place: str) -> None:
        self._write(self.proc / "cgroup", f"{place}\n")

    def have(self, *filesystems: str) -> None:
        """What is mounted there, one over the other."""
        lines = [f"30 22 0:26 / {self.mount} rw - {filesystem} cgroup rw\n" for filesystem in filesystems]
        self._write(self.proc / "mountinfo", "22 1 0:2 / / rw - ext4 /dev/vda rw\n" + "".join(lines))

    def _remount(self, _: Any) -> Result:
        self.read_only = False
        return Result(code=0)

    def set(self, cgroup: Path, name: str, text: str) -> None:
        self._write(cgroup / name, text)

    def get(self, cgroup: Path | str, name: str) -> list[str]:
        return self._read(self.mount / cgroup / name, encoding="ascii").split()

    def cgroups(self) -> list[Path]:
        return [Path(path) for path, _, _ in os.walk(self.mount)]

    def mkdir(self, path: Path, *args: Any, **named: Any) -> None:
        is_new = path.is_relative_to(self.mount) and not path.is_dir()
        self._mkdir(path, *args, **named)
        for cgroup in (path, path.parent) if is_new and path != self.mount else [path] * is_new:
            if not (cgroup / "cgroup.procs").exists():
                for name in ("cgroup.procs", "cgroup.subtree_control", "memory.swap.max"):
                    self.set(cgroup, name, "")
                self.set(cgroup, "cgroup.controllers", ALL)
                self.set(cgroup, "memory.max", "max")

    def read(self, path: Path, **named: Any) -> str:
        text = self._read(path, **named)
        if path == self.mount / "cgroup.procs" and self.arriving:
            return f"{text} {self.arriving.pop()}"
        return text

    def write(self, path: Path, text: str, **named: Any) -> int:
        if path.name != "cgroup.procs":
            return self._write(path, text, **named)
        for other in self.cgroups():
            self.set(other, "cgroup.procs", " ".join(p for p in self.get(other, "cgroup.procs") if p != text))
        if text in self.gone:
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
        return self._write(path, " ".join([*self.get(path.parent, "cgroup.procs"), text]))

    def take(self) -> Subtree:
        """As a worker does."""
        return take_subtree(
            "slurmd", JOBS, 1000 * 2**20, self.runner,
            mount=self.mount, proc=self.proc, is_read_only=lambda _: self.read_only,
        )  # fmt: skip


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_jobs_have_their_own_part_of_what_the_container_has(machine: Machine) -> None:
    assert machine.take() == Subtree(how="remounted", swap=True)

    assert machine.runner.commands == [f"{REMOUNT} {machine.mount}"]
    assert machine.get("", "cgroup.procs") == machine.get(JOBS, "cgroup.procs") == []
    assert machine.get("slurmd", "cgroup.procs") == ["1", "17", "18"]
    for cgroup in ("", "system.slice", JOBS):
        assert {name.strip("+") for name in machine.get(cgroup, "cgroup.subtree_control")} == set(ALL.split()) - {
            "rdma",
            "misc",
        }
    assert machine.get(JOBS, "memory.max") == [str(1000 * 2**20)]
    assert machine.get("system.slice", "memory.max") == ["max"], "the container's own limit is Kubernetes'"


def test_the_container_s_own_limit(machine: Machine, tmp_path: Path) -> None:
    for text, limit in (("8589934592", 2**33), ("max", None)):
        machine.set(machine.mount, "memory.max", f"{text}\n")
        assert memory_limit(machine.mount) == limit
    assert memory_limit(tmp_path) is None, "version 1"


def test_what_the_runtime_lets_a_container_write_is_not_mounted_again(machine: Machine) -> None:
    machine.read_only = False
    assert machine.take().how == "runtime"
    assert machine.runner.commands == []


def test_a_second_start_in_the_same_container_finds_its_place(machine: Machine) -> None:
    machine.take()
    machine.be_in("0::/slurmd")
    assert machine.take() == Subtree(how="runtime", swap=True)


def test_processes_that_come_and_go_meanwhile_are_in_the_way_of_nothing(machine: Machine) -> None:
    """Kubelet starts its probes whenever it likes."""
    machine.arriving = ["30", "31"]
    machine.gone = {"17", "31"}
    machine.take()
    assert machine.get("slurmd", "cgroup.procs") == ["1", "18", "30"]


@pytest.mark.parametrize("filesystems", [["tmpfs"], ["cgroup"], [], ["cgroup2", "tmpfs"], ["cgroup2", "cgroup"]])
def test_version_1_offers_nothing(machine: Machine, filesystems: list[str]) -> None:
    machine.have(*filesystems)
    with pytest.raises(CannotConfineError, match="version 1 of cgroups"):
        machine.take()
    assert machine.runner.commands == []


@pytest.mark.parametrize(
    "place",
    ["0::/kubepods.slice/pod1.slice/cri-1.scope", "0::/../x", "12:cpu:/\n0::/", "0::/system.slice/w-0.scope", ""],
)
def test_without_a_namespace_the_machine_s_own_tree_is_left_alone(machine: Machine, place: str) -> None:
    machine.be_in(place)
    with pytest.raises(CannotConfineError, match="no cgroup namespace"):
        machine.take()
    assert machine.runner.commands == []
    assert machine.cgroups() == [machine.mount]


def test_controllers_that_kubernetes_keeps_to_itself_are_named(machine: Machine) -> None:
    machine.set(machine.mount, "cgroup.controllers", "io pids memory")
    with pytest.raises(CannotConfineError, match="lacks cpu, cpuset"):
        machine.take()
    assert machine.cgroups() == [machine.mount]


def test_a_mount_that_stays_read_only_is_said(machine: Machine) -> None:
    machine.runner.answers[REMOUNT] = Result(code=32, stderr="mount: permission denied")
    with pytest.raises(CannotConfineError, match=r"read-only and cannot be mounted otherwise: .*permission denied"):
        machine.take()
