"""Processes in a /proc of the test's own."""

from __future__ import annotations

from pathlib import Path


def add_process(
    proc: Path, pid: int, *, comm: str = "sleep", state: str = "S", title: str = "", uid: int = 1000, parent: int = 1
) -> None:
    directory = proc / str(pid)
    directory.mkdir(parents=True)
    (directory / "stat").write_text(f"{pid} ({comm}) {state} {parent} {pid} " + "0 " * 16 + "4711 0 0\n")
    (directory / "cmdline").write_text(title)
    (directory / "status").write_text(f"Name:\t{comm}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")
