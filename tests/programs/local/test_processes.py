"""Daemons of the local cluster as real processes."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from local import cgroups, files, processes


@pytest.fixture
def entered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Processes that would have been put into a cgroup."""
    monkeypatch.setenv("SLURMSTACK_LOCAL_DIR", str(tmp_path))
    entered: list[int] = []
    monkeypatch.setattr(cgroups, "enter", lambda pid, _: entered.append(pid))
    return entered


DAEMON = ("/bin/sh", "-c", "echo began; exec sleep 60")


def test_a_daemon_is_recorded_and_begins(entered: list[int]) -> None:
    record = processes.start("etcd", DAEMON, os.environ)
    try:
        assert processes.is_running("etcd")
        assert entered == [record.pid]
        while not processes.log_tail("etcd"):
            assert processes.is_running("etcd")
        assert processes.log_tail("etcd") == "began"
    finally:
        processes.stop("etcd")
    assert not processes.is_running("etcd")


def test_a_start_that_is_interrupted_before_the_record_leaves_no_daemon_that_nobody_knows(
    entered: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had the port of the next one (etcd: address already in use), and outlived `down`."""

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(files, "write_whole", interrupted)
    with pytest.raises(KeyboardInterrupt):
        processes.start("etcd", DAEMON, os.environ)
    [pid] = entered
    os.waitpid(pid, 0)  # it ends by itself
    assert processes.log_tail("etcd") == ""
    assert not processes.is_running("etcd")


def test_a_process_that_ended_is_dead_even_while_nobody_waited_for_it(entered: list[int]) -> None:
    record = processes.start("etcd", DAEMON, os.environ)
    assert record.is_alive()
    os.kill(record.pid, signal.SIGKILL)
    os.waitid(os.P_PID, record.pid, os.WEXITED | os.WNOWAIT)
    assert not record.is_alive()
