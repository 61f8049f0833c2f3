"""The resident process, and the program in C that slurmd starts, which asks it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from images.health import alone, resident
from tests.programs.waiting import wait_until
from tests.stacks import ROOT

pytestmark = pytest.mark.skipif(
    not all(map(shutil.which, ("cc", "make"))), reason="no C compiler here; the images' own build compiles and tests it"
)


def test_without_it_the_program_does_its_work_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/libexec/slurmstack/health-alone", "prolog"])
    monkeypatch.setattr(resident, "PROGRAMS", {"prolog": lambda: 5})
    assert alone.main() == 5


def test_the_periodic_run_starts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["health-alone", "periodic"])
    monkeypatch.setattr(resident, "PROGRAMS", {"periodic": lambda: 0})
    started: list[str] = []
    monkeypatch.setattr(resident, "start", started.append)
    assert alone.main() == 0
    assert started == [alone.SOCKET]


@pytest.mark.parametrize("gpus", [False, True])
def test_only_a_node_without_checks_around_jobs_is_called_plain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpus: bool
) -> None:
    monkeypatch.setattr(resident, "pod_environment", lambda: {"NODE_CONF": "CPUs=2 Gres=gpu:8" if gpus else "CPUs=2"})
    plain = tmp_path / "plain"
    plain.touch()
    resident.Resident(tmp_path / "socket")._say_whether_plain()
    assert plain.exists() is not gpus


NO_ANSWER = None


class Caller:
    """`health-call` with a socket of its own, compiled as the images compile it."""

    def __init__(self, directory: Path, socket_path: Path, **defines: str) -> None:
        self._directory = directory
        flags = " ".join(f"-D{name}={value}" for name, value in defines.items())
        command = ["make", "-C", str(ROOT / "images/health/native"), f"BUILD={directory}", f"SOCKET={socket_path}"]
        environment = {**os.environ, "CFLAGS": flags}
        subprocess.run([*command, f"{directory}/health-call"], check=True, capture_output=True, env=environment)

    def ask(self, program: str, environment: Mapping[bytes, bytes]) -> int | None:
        """Its exit code; None if it would have started health-alone, which is not here."""
        name = self._directory / f"health-{program}"
        if not name.is_symlink():
            name.symlink_to(self._directory / "health-call")
        done = subprocess.run([str(name)], env=dict(environment), capture_output=True, check=False)
        if b"health-alone: No such file" in done.stderr:
            assert done.returncode == 0, "a prolog that fails drains the node"
            return NO_ANSWER
        return done.returncode


@pytest.fixture
def caller(tmp_path: Path) -> Caller:
    return Caller(tmp_path, tmp_path / "socket")


@pytest.fixture
def path(caller: Caller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A resident process whose programs say what they were given in their exit code."""
    monkeypatch.setattr(resident, "PROGRAMS", {"prolog": _prolog, "epilog": _epilog, "periodic": lambda: 0})
    with serving(caller, tmp_path / "socket"):
        yield tmp_path / "socket"


@contextlib.contextmanager
def serving(caller: Caller, path: Path) -> Iterator[None]:
    """A resident process, until it is killed."""
    child = os.fork()
    if child == 0:
        try:
            resident.Resident(path).serve()
        finally:
            os._exit(3)
    wait_until(lambda: caller.ask("prolog", {b"CODE": b"9"}) == 9)
    yield
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def _leave_a_process() -> int:
    """One that nothing ends, with all that a fork inherits."""
    left = os.fork()
    if left == 0:
        os.setsid()
        signal.pause()
    Path(os.environ["PATH"]).write_text(str(left))
    return 0


def _prolog() -> int:
    return int(os.environ["CODE"])


def _epilog() -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


def test_the_program_runs_with_the_caller_s_environment(path: Path, caller: Caller) -> None:
    assert caller.ask("prolog", {b"CODE": b"7", b"OTHER": b"a=b\xff"}) == 7


def test_each_run_has_only_its_own_environment(path: Path, caller: Caller) -> None:
    assert caller.ask("prolog", {b"CODE": b"7"}) == 7
    assert caller.ask("prolog", {}) is NO_ANSWER  # KeyError: the caller does the work and sees for itself


def test_a_run_that_crashes_is_no_answer_and_harms_no_other(path: Path, caller: Caller) -> None:
    assert caller.ask("epilog", {}) is NO_ANSWER
    assert caller.ask("prolog", {b"CODE": b"1"}) == 1


def test_an_unknown_program_is_no_answer(path: Path, caller: Caller) -> None:
    assert caller.ask("nonsense", {}) is NO_ANSWER


def test_a_second_resident_process_leaves_the_first_alone(path: Path, caller: Caller) -> None:
    resident.Resident(path).serve()  # returns
    assert caller.ask("prolog", {b"CODE": b"4"}) == 4


def test_what_outlives_a_run_keeps_no_other_resident_process_from_starting(
    caller: Caller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resident, "PROGRAMS", {"prolog": _prolog, "epilog": _leave_a_process})
    with serving(caller, tmp_path / "socket"):
        assert caller.ask("epilog", {b"PATH": os.fsencode(tmp_path / "left")}) == 0
    left = int((tmp_path / "left").read_text())
    try:
        with serving(caller, tmp_path / "socket"):
            assert caller.ask("prolog", {b"CODE": b"5"}) == 5
    finally:
        os.kill(left, signal.SIGKILL)


def test_only_its_own_user_can_reach_it(path: Path) -> None:
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_socket_that_nobody_listens_on_is_no_answer(caller: Caller, tmp_path: Path) -> None:
    assert caller.ask("prolog", {}) is NO_ANSWER
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "socket"))
    assert caller.ask("prolog", {}) is NO_ANSWER


def test_one_that_never_answers_does_not_keep_a_job_from_starting(tmp_path: Path) -> None:
    caller = Caller(tmp_path, tmp_path / "silent", PATIENCE_SECONDS="1")
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "silent"))
        silent.listen(1)
        assert caller.ask("prolog", {}) == 0


def test_the_usual_case_around_a_job_as_the_program_in_c_sees_it(tmp_path: Path) -> None:
    native = str(ROOT / "images/health/native")
    done = subprocess.run(
        ["make", "-C", native, f"BUILD={tmp_path}", "check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_end_of_a_job_is_told_to_the_warden_that_takes_the_place_of_one_that_ended(tmp_path: Path) -> None:
    """Else the job's cell, with all that is in its /dev/shm, would stay for a day."""
    caller = Caller(tmp_path, tmp_path / "socket", WARDEN_SOCKET=f"'\"{tmp_path}/warden\"'")
    told: list[bytes] = []

    def warden(listening: socket.socket) -> None:
        for answer in (None, b"ok later", b"ok"):
            connection, _ = listening.accept()
            with connection:
                told.append(connection.recv(100))
                if answer is not None:
                    connection.send(answer)

    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(str(tmp_path / "warden"))
        listening.listen()
        listening.settimeout(20)
        serving_it = threading.Thread(target=warden, args=(listening,), daemon=True)
        serving_it.start()
        caller.ask("epilog", {b"SLURM_JOB_ID": b"17"})
        serving_it.join(20)
    assert told == [b"end 17"] * 3
