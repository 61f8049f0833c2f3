"""No test here starts a process or sleeps."""

from __future__ import annotations

from tests.in_process import in_process

__all__ = ["in_process"]
