from __future__ import annotations

from concurrent.futures import Future
from threading import Event

import pytest

from local import shell


def test_what_runs_beside_work_that_fails_is_stopped() -> None:
    began = Event()

    def work() -> int:
        return shell.follow(["sh", "-c", "echo began; exec sleep 600"], lambda _: began.set())[0]

    def begin_and_fail() -> Future[int]:
        with shell.threads(1) as pool:
            working.append(pool.submit(work))
            began.wait(180)
            raise ValueError("no space")

    working: list[Future[int]] = []
    with pytest.raises(ValueError, match="no space"):
        begin_and_fail()
    assert began.is_set()
    assert working[0].result() != 0
