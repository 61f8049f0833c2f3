"""Waiting for what another process or thread does, however slow the machine is."""

from __future__ import annotations

import time
from collections.abc import Callable

HANGS = 180.0
"""Seconds after which nobody waits any longer: it is a fault then, and no slow machine."""


def wait_until(condition: Callable[[], object]) -> None:
    """Look until it is so."""
    deadline = time.monotonic() + HANGS
    while not condition():
        assert time.monotonic() < deadline, "it never came to be so"
        time.sleep(0.02)
