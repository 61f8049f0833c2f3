"""The resident process: what slurmd starts asks it, and does the work itself where it does not answer."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from images.health import call, resident


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A resident process whose programs say what they were given in their exit code."""
    monkeypatch.setattr(resident, "PROGRAMS", {"prolog": _prolog, "epilog": _epilog, "periodic": lambda: 0})
    path = tmp_path / "socket"
    child = os.fork()
    if child == 0:
        try:
            resident.Resident(path).serve()
        finally:
            os._exit(3)
    while call.ask("periodic", {}, str(path)) is None:
        time.sleep(0.01)
    yield path
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def _prolog() -> int:
    return int(os.environ["CODE"])


def _epilog() -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


def test_the_program_runs_with_the_caller_s_environment(path: Path) -> None:
    assert call.ask("prolog", {b"CODE": b"7", b"OTHER": b"a=b\xff"}, str(path)) == 7


def test_each_run_has_only_its_own_environment(path: Path) -> None:
    assert call.ask("prolog", {b"CODE": b"7"}, str(path)) == 7
    assert call.ask("prolog", {}, str(path)) is None  # KeyError: the caller does the work and sees for itself


def test_a_run_that_crashes_is_no_answer_and_harms_no_other(path: Path) -> None:
    assert call.ask("epilog", {}, str(path)) is None
    assert call.ask("prolog", {b"CODE": b"1"}, str(path)) == 1


def test_an_unknown_program_is_no_answer(path: Path) -> None:
    assert call.ask("nonsense", {}, str(path)) is None


def test_a_second_resident_process_leaves_the_first_alone(path: Path) -> None:
    resident.Resident(path).serve()  # returns
    assert call.ask("prolog", {b"CODE": b"4"}, str(path)) == 4


def test_only_its_own_user_can_reach_it(path: Path) -> None:
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_socket_that_nobody_listens_on_is_no_answer(tmp_path: Path) -> None:
    assert call.ask("prolog", {}, str(tmp_path / "none")) is None
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "left"))
    assert call.ask("prolog", {}, str(tmp_path / "left")) is None


def test_one_that_never_answers_does_not_keep_a_job_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call, "PATIENCE_SECONDS", 0.05)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "silent"))
        silent.listen(1)
        assert call.ask("prolog", {}, str(tmp_path / "silent")) == 0


def test_without_it_the_program_does_its_work_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call, "SOCKET", str(tmp_path / "socket"))
    monkeypatch.setattr(sys, "argv", ["/usr/libexec/slurmstack/health-prolog"])
    monkeypatch.setattr(resident, "PROGRAMS", {"prolog": lambda: 5})
    assert call.main() == 5


def test_the_periodic_run_starts_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call, "SOCKET", str(tmp_path / "socket"))
    monkeypatch.setattr(sys, "argv", ["health-periodic"])
    monkeypatch.setattr(resident, "PROGRAMS", {"periodic": lambda: 0})
    started: list[str] = []
    monkeypatch.setattr(resident, "start", started.append)
    assert call.main() == 0
    assert started == [str(tmp_path / "socket")]
