"""Tests of the program stay in their process and do not wait: what starts others, or sleeps, belongs in tests/programs.

A folder's conftest.py takes the fixture from here, and then the rule holds for the tests below it.
"""

from __future__ import annotations

import multiprocessing.process
import os
import subprocess
import time
from typing import Any

import pytest

LONGEST_SLEEP = 0.05
"""Seconds. Less only gives way to another thread."""

STARTS: tuple[tuple[Any, str], ...] = (
    (subprocess.Popen, "_execute_child"),
    (multiprocessing.process.BaseProcess, "start"),
    *((os, name) for name in ("fork", "forkpty", "posix_spawn", "posix_spawnp", "system")),
)


@pytest.fixture(autouse=True)
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a test fail that starts a process or sleeps."""

    def refuse(*_: object, **_more: object) -> None:
        pytest.fail("this starts a process: it belongs in tests/programs")

    def sleep(seconds: float, real: Any = time.sleep) -> None:
        if seconds > LONGEST_SLEEP:
            pytest.fail(f"time.sleep({seconds}): this belongs in tests/programs")
        real(seconds)

    for owner, name in STARTS:
        monkeypatch.setattr(owner, name, refuse)
    monkeypatch.setattr(time, "sleep", sleep)
