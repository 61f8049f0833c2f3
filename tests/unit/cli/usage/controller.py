"""A stand-in for kubectl, for commands that ask sacct."""

from __future__ import annotations

import subprocess


class Controller:
    """kubectl with a controller whose sacct gives one answer."""

    def __init__(self, stdout: str = "", stderr: str = "", code: int = 0) -> None:
        self.answer = subprocess.CompletedProcess([], code, stdout, stderr)
        self.asked: list[tuple[str, ...]] = []

    def run(
        self, *arguments: str, stdin: str | None = None, check: bool = True, **_: float
    ) -> subprocess.CompletedProcess[str]:
        assert not check
        assert stdin is None
        self.asked.append(arguments)
        return self.answer
