"""Daemons of the local cluster as real processes; the daemons' cgroup is a file that has who is in it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from local import processes

DAEMON = ("/bin/sh", "-c", "echo began; exec sleep 60")


@pytest.fixture
def cgroup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SLURMSTACK_LOCAL_DIR", str(tmp_path))
    procs = tmp_path / "cgroup.procs"
    procs.touch()
    monkeypatch.setattr(processes, "_entrance", lambda _: procs)

    def inside(*_: str) -> set[int]:
        return set(map(int, procs.read_text().split())) if procs.is_file() else set()

    monkeypatch.setattr(processes, "_processes_in", inside)
    return procs


def test_a_daemon_is_in_its_cgroup_and_recorded_when_it_begins_and_can_be_stopped(cgroup: Path) -> None:
    processes.start("etcd", DAEMON, os.environ)
    try:
        assert processes.is_running("etcd")
        assert cgroup.read_text().split() == [str(processes.pid_of("etcd"))]
        while not processes.log_tail("etcd"):
            assert processes.is_running("etcd")
        assert processes.log_tail("etcd") == "began"
    finally:
        processes.stop("etcd")
    assert not processes.is_running("etcd")


def test_a_daemon_that_cannot_enter_its_cgroup_does_not_begin(cgroup: Path) -> None:
    """It would have the port of the next one (etcd: address already in use), and outlive `down`."""
    cgroup.unlink()
    cgroup.mkdir()
    processes.start("etcd", DAEMON, os.environ)
    assert "began" not in processes.log_tail("etcd")


def test_one_that_began_and_was_never_recorded_is_ended_before_it_is_started_anew(cgroup: Path) -> None:
    """Its port would be taken: whoever started it was killed in between."""
    pid = os.posix_spawn("/bin/sleep", ["sleep", "60"], os.environ)
    cgroup.write_text(str(pid))
    processes.start("etcd", DAEMON, os.environ)
    try:
        assert not Path(f"/proc/{pid}").exists()
        assert processes.started_at("etcd")
    finally:
        processes.stop("etcd")
    assert processes.started_at("etcd") is None


def test_a_process_that_ended_is_dead_even_while_nobody_waited_for_it(cgroup: Path) -> None:
    processes.start("etcd", DAEMON, os.environ)
    pid = processes.pid_of("etcd")
    assert pid
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert not processes.is_running("etcd")


def test_a_process_with_the_number_of_a_daemon_that_is_gone_is_not_taken_for_it(cgroup: Path) -> None:
    """After a reboot, for example: nothing is in a cgroup of ours then."""
    (cgroup.parent / "cluster/run").mkdir(parents=True)
    (cgroup.parent / "cluster/run/etcd.json").write_text(f'{{"pid": {os.getpid()}, "boot_id": "old"}}')
    assert not processes.is_running("etcd")
    cgroup.write_text(str(os.getpid()))
    assert processes.is_running("etcd")
