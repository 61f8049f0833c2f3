"""Processes in a /proc of the test's own."""

from __future__ import annotations

from pathlib import Path

from images.common.steps import SLURMSTEPD


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
