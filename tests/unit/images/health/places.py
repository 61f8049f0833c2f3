"""A node with a root, a jail, a state directory and processes of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from images.common.health.contract import Check, Node, Result
from images.common.steps import SLURMSTEPD
from images.health.runner import attempt
from tests.fakes.commands import FakeRunner

DATA = Path(__file__).parent / "data"


def make_node(tmp_path: Path, **more: object) -> Node:
    """A node with a populated jail, whose /proc, /sys and /run are empty."""
    jail = tmp_path / "jail"
    (jail / ".slurmstack").mkdir(parents=True, exist_ok=True)
    root = tmp_path / "root"
    root.mkdir(exist_ok=True)
    node = Node(name="w-0", jail=jail, root=root, state=tmp_path / "state", local_disks=(root,))
    return replace(node, **more)  # type: ignore[arg-type]


def write(path: Path, text: str) -> None:
    """A file, with the directories above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def add_process(
    proc: Path,
    pid: int,
    *,
    comm: str = "sleep",
    state: str = "S",
    title: str = "",
    uid: int = 1000,
    parent: int = 1,
    threads: int = 1,
    runs: str = "",
) -> None:
    """`runs`: the program, below the root directory; by default slurmstepd for root's process of that name."""
    directory = proc / str(pid)
    directory.mkdir(parents=True)
    (directory / "stat").write_text(f"{pid} ({comm}) {state} {parent} {pid} " + "0 " * 14 + f"{threads} 0 4711 0 0\n")
    (directory / "cmdline").write_text(title)
    (directory / "status").write_text(f"Name:\t{comm}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")
    run(proc, pid, runs or (SLURMSTEPD if (comm, uid) == ("slurmstepd", 0) else f"usr/bin/{comm.replace('/', '')}"))


def run(proc: Path, pid: int, program: str) -> None:
    """Have a process run a program, below the root directory."""
    path = proc.parent / program
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    link = proc / str(pid) / "exe"
    link.unlink(missing_ok=True)
    link.symlink_to(path)


def run_at_once(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    """Let this module of images/health run its checks so."""

    def run_checks(checks: Sequence[Check], node: Node, **_: Any) -> dict[str, Result]:
        tools: Any = FakeRunner()
        return {check.name: attempt(check, node, tools) for check in checks}

    monkeypatch.setattr(f"images.health.{module}.run_checks", run_checks)
