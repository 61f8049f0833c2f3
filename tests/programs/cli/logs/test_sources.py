"""Logs are read side by side, until somebody has had enough."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from cli.bundle.archive import Bundle
from cli.logs.sources import AT_ONCE, read_all
from tests.programs.waiting import HANGS


@pytest.mark.parametrize(
    ("read", "answer"),
    [(read_all, []), (lambda sources: Bundle().read(sources, lambda *_: None), "")],
    ids=["logs", "support-bundle"],
)
def test_after_ctrl_c_nothing_more_is_begun(
    monkeypatch: pytest.MonkeyPatch, read: Callable[[Any], object], answer: object
) -> None:
    """Of a sick cluster each of hundreds may take a minute."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # as a command has it
    begun, ends, shutdown = list[int](), threading.Event(), ThreadPoolExecutor.shutdown

    def noted(pool: ThreadPoolExecutor, wait: bool = True, *, cancel_futures: bool = False) -> None:
        shutdown(pool, wait=False, cancel_futures=cancel_futures)
        ends.set()
        shutdown(pool, wait=wait)

    monkeypatch.setattr(ThreadPoolExecutor, "shutdown", noted)

    def source() -> Any:
        begun.append(1)
        if len(begun) == AT_ONCE:
            threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
        assert ends.wait(HANGS)
        return answer

    try:
        with pytest.raises(KeyboardInterrupt):
            read({str(number): source for number in range(10 * AT_ONCE)})
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(begun) == AT_ONCE
