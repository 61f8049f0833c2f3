"""A slurmctld that is tried, kept up and ended by our programs, and judged by its answers."""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from images.common.wait import Clock
from images.controller import supervisor as module
from images.controller.check import check
from images.controller.lease import UNANSWERED
from images.controller.supervisor import Daemon, answers
from tests.programs.waiting import HANGS, wait_until

FILES = {"slurm.conf": "ClusterName=a\n"}
ME = pwd.getpwuid(os.getuid()).pw_name


def quiet(_: str) -> None:
    """A log that nobody reads."""


def program(directory: Path, script: str, name: str = "slurmctld") -> str:
    path = directory / name
    path.write_text(f"#!/bin/bash\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_one_that_hangs_is_given_up_with_its_last_line(tmp_path: Path) -> None:
    fake = program(tmp_path, "echo 'slurmctld: thinking'; sleep 60")

    verdict = check(FILES, program=fake, user=ME, timeout=0.5)

    assert not verdict.starts
    assert verdict.complaints == ("error: slurmctld is not up after 0.5 s; its last line: thinking",)


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    """One that runs."""
    made = Daemon(("/bin/sleep", "987"), quiet, Clock())
    made.keep_up()
    yield made
    made.end(signal.SIGKILL)
    assert not made.hangs


def stay_silent(daemon: Daemon) -> bool:
    """Whether it hangs when it has answered as few questions as it may."""
    for _ in range(UNANSWERED):
        assert not daemon.hangs
        daemon.note(answered=False)
    return daemon.hangs


def test_one_that_has_answered_and_no_longer_does_hangs(daemon: Daemon) -> None:
    assert not stay_silent(daemon), "it reads its state"
    daemon.note(answered=True)
    assert stay_silent(daemon)


def test_a_daemon_that_hangs_in_the_kernel_is_not_waited_for_and_no_second_one_is_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[str] = []
    daemon = Daemon(("/bin/sleep", "987"), said.append, Clock())
    daemon.keep_up()
    pid = daemon._pid
    with monkeypatch.context() as patched:
        patched.setattr(os, "killpg", lambda *_: None)
        patched.setattr(module, "DEAD_SECONDS", 0.5)
        daemon.end(signal.SIGKILL)
    assert said == ["slurmctld is killed, and gone when the volume answers what it has asked"]
    daemon.keep_up()
    assert daemon._pid == pid
    daemon.end(signal.SIGKILL)
    assert daemon._pid == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_daemon_is_ended_with_all_that_it_has_started(number: signal.Signals, tmp_path: Path) -> None:
    daemon = Daemon(
        ("/bin/sh", "-c", f"sleep 987 & echo $! >{tmp_path}/new; mv {tmp_path}/new {tmp_path}/pid; wait"),
        quiet,
        Clock(),
    )
    daemon.keep_up()
    wait_until((tmp_path / "pid").exists)
    assert daemon.reap()
    daemon.end(number)
    assert not daemon.reap()
    child = (tmp_path / "pid").read_text().strip()
    state = subprocess.run(["ps", "-o", "stat=", child], capture_output=True, text=True, check=False).stdout
    assert state.strip()[:1] in {"", "Z"}


@pytest.mark.parametrize(("script", "expected"), [
    ('grep -q "localhost(127.0.0.1)" $SLURM_CONF && echo "Slurmctld(primary) at localhost is UP"', True),
    ('echo "Slurmctld(primary) at localhost is DOWN"', False),
    ("exec sleep 600", False),
])  # fmt: skip
def test_slurmctld_of_this_pod_is_asked_whatever_its_name_leads_to(
    script: str, expected: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path, script, "scontrol")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(module, "ASKING", tmp_path / "asking.conf")
    monkeypatch.setattr(module, "ANSWER_SECONDS", 0.5 if "sleep" in script else HANGS)
    assert answers() is expected
