from __future__ import annotations

from concurrent.futures import Future
from threading import Event

import pytest

from local import shell
from local.errors import LocalError


def test_what_runs_beside_work_that_fails_is_stopped_and_begins_nothing_more() -> None:
    began, second = Event(), Event()

    def work() -> None:
        shell.follow(["sh", "-c", "echo began; exec sleep 600"], lambda _: began.set())
        shell.follow(["echo", "second"], lambda _: second.set())

    def begin_and_fail() -> Future[None]:
        with shell.threads(1) as pool:
            working.append(pool.submit(work))
            began.wait(180)
            raise ValueError("no space")

    working: list[Future[None]] = []
    with pytest.raises(ValueError, match="no space"):
        begin_and_fail()
    with pytest.raises(LocalError, match="stopped"):
        working[0].result()
    assert began.is_set()
    assert not second.is_set()
    assert shell.follow(["echo", "later"], lambda _: None) == (0, ["later"])
