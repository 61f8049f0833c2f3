"""No test here starts a process or sleeps."""

from __future__ import annotations

from tests.in_process import pytest_runtest_call, pytest_runtest_setup, pytest_runtest_teardown

__all__ = ["pytest_runtest_call", "pytest_runtest_setup", "pytest_runtest_teardown"]
