"""Tests of the program stay in their process and do not wait: what starts others, or sleeps, belongs in tests/programs.

A folder's conftest.py takes the two hooks from here, and then the rule holds for the tests below it.
"""

from __future__ import annotations

import functools
import multiprocessing.process
import os
import subprocess
import time
from collections.abc import Callable, Generator
from typing import Any

import pytest

LONGEST_SLEEP = 0.05
"""Seconds. Less only gives way to another thread."""

PROCESSES: tuple[tuple[Any, str], ...] = (
    (subprocess.Popen, "_execute_child"),
    (multiprocessing.process.BaseProcess, "start"),
    *((os, name) for name in ("fork", "forkpty", "posix_spawn", "posix_spawnp", "system")),
)


class _Guard:
    """What the test that runs has done against the rule; nobody is watched between tests and in other folders."""

    def __init__(self) -> None:
        self.watching = False
        self.seen: list[str] = []

    def refuse(self, what: str) -> None:
        self.seen.append(what)
        pytest.fail(f"{what}: this belongs in tests/programs")

    def report(self) -> None:
        """Fail for what was refused in a thread, or by what takes any failure of a program calmly."""
        seen, self.seen = self.seen, []
        if seen:
            pytest.fail(f"{'; '.join(seen)}: this belongs in tests/programs")


_guard = _Guard()


def _guarded(call: Callable[..., Any], name: str) -> Callable[..., Any]:
    @functools.wraps(call)
    def guarded(*arguments: Any, **more: Any) -> Any:
        if _guard.watching:
            _guard.refuse(f"{name} starts a process")
        return call(*arguments, **more)

    return guarded


def _sleep_guarded(sleep: Callable[[float], None]) -> Any:
    @functools.wraps(sleep)
    def guarded(seconds: float, /) -> None:
        if _guard.watching and seconds > LONGEST_SLEEP:
            _guard.refuse(f"time.sleep({seconds})")
        sleep(seconds)

    return guarded


for _owner, _name in PROCESSES:
    setattr(_owner, _name, _guarded(getattr(_owner, _name), f"{_owner.__name__}.{_name}"))
time.sleep = _sleep_guarded(time.sleep)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup() -> Generator[None, None, None]:
    """Watch from here on, fixtures of all scopes included."""
    _guard.watching = True
    _guard.seen.clear()
    try:
        yield
    except BaseException:
        _guard.seen.clear()
        raise


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call() -> Generator[None, None, None]:
    """Have the test itself fail, where it can."""
    try:
        yield
    except BaseException:
        _guard.seen.clear()
        raise
    _guard.report()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown() -> Generator[None, None, None]:
    """Watch until the last fixture is done."""
    try:
        yield
    finally:
        _guard.watching = False
    _guard.report()
