"""ssh to workers: who gets in, what ends, which job a session is in and what it is given, which host key is known."""

from __future__ import annotations

import contextlib
import io
import os
import pwd
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from images.common.command import Result
from images.common.log import Log
from images.jail.known_host import LOGIN_KEY, known_host
from images.jail.ssh_session import environment, newest_job
from images.login import worker_ssh
from images.login.worker_ssh import end_without_job, refusal, start_ending
from tests.fakes.commands import FakeRunner


def test_a_session_has_nothing_of_slurm_s_and_keeps_what_names_the_job_s_gpus() -> None:
    given = {
        "SLURM_JOB_ID": "7", "SLURMD_NODENAME": "default-0", "PMIX_RANK": "0", "SRUN_DEBUG": "3",
        "HOME": "/nonexistent", "USER": "alice", "SHELL": "/bin/bash", "PATH": "/usr/bin:/run/slurmstack/gpu/bin",
        "OMPI_MCA_plm_slurm_args": "--external-launcher", "SSH_CONNECTION": "10.0.0.1 40000 10.0.0.2 22",
        "SSH_ORIGINAL_COMMAND": "env", "LC_ALL": "C", "TERM": "xterm", "CUDA_VISIBLE_DEVICES": "0,1",
    }  # fmt: skip
    assert environment("/home/alice", given) == {
        "SSH_CONNECTION": "10.0.0.1 40000 10.0.0.2 22", "LC_ALL": "C", "TERM": "xterm", "CUDA_VISIBLE_DEVICES": "0,1",
        "USER": "alice", "HOME": "/home/alice", "SHELL": "/bin/bash", "PATH": "/usr/bin:/run/slurmstack/gpu/bin",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("listed", "options"),
    [
        ("0 RUNNING 18 17_1\n0 RUNNING 12 12\n", ["--jobid=18"]),
        ("0 COMPLETING 13 13\n0 SIGNALING 12 11+1\n0 RUNNING 9 9\n", ["--jobid=11", "--het-group=1"]),
        ("0 SUSPENDED 12 12\n10002 RUNNING 11 11\n", None),
    ],
)
def test_the_job_that_started_last_is_taken_as_srun_wants_it_called(
    monkeypatch: pytest.MonkeyPatch, listed: str, options: list[str] | None
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 0)
    runner = FakeRunner({"/usr/bin/squeue": Result(code=0, stdout=listed)})
    if options is None:
        with pytest.raises(OSError, match="you have no job on gpu-0"):
            newest_job("gpu-0", runner)
    else:
        assert newest_job("gpu-0", runner) == options
    assert "--sort=-S,-i" in runner.commands[0]


@pytest.mark.parametrize(
    ("host", "known"),
    [
        ("gpu-0", "worker"), ("big-mem-12", "worker"), ("login", "login"), ("login-1", "login"), ("login-x", ""),
        ("gpu-0.example.com", ""), ("gpu", ""),
    ],
)  # fmt: skip
def test_the_keys_of_the_cluster_are_known_for_names_of_its_nodes_alone(tmp_path: Path, host: str, known: str) -> None:
    key, conf = tmp_path / "key", tmp_path / "slurm.conf"
    key.write_text("ssh-ed25519 worker\n")
    key.with_name(LOGIN_KEY).write_text("ssh-ed25519 login\n")
    conf.write_text("ClusterName=a\nNodeSet=gpu Feature=gpu\nNodeSet=big-mem Feature=big-mem\n")
    assert known_host(host, key, conf) == (f"{host} ssh-ed25519 {known}\n" if known else "")


def test_where_workers_have_no_sshd_no_key_is_known(tmp_path: Path) -> None:
    assert known_host("gpu-0", tmp_path / "key", tmp_path / "slurm.conf") == ""


@pytest.fixture
def jail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One with the program of a session. Bob's number is 10002, that of sshd's own user 101."""
    program = tmp_path / "jail/usr/libexec/slurmstack/ssh-session"
    program.parent.mkdir(parents=True)
    program.touch()
    numbers = {"bob": 10002, "sshd": 101}
    monkeypatch.setattr(
        pwd, "getpwnam", lambda name: pwd.struct_passwd((name, "x", numbers[name], numbers[name], "", "/", "/bin/sh"))
    )
    return tmp_path / "jail"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Result(code=0, stdout="10002 COMPLETING 13 13\n10002 RUNNING 12 12\n"), ""),
        (Result(code=0, stdout="10002 STOPPED 12 12\n"), ""),
        (Result(code=0, stdout="10002 SUSPENDED 12 12\n10002 COMPLETING 13 13\n"), "you have no job on gpu-0"),
        (Result(code=1, stderr="slurm_load_jobs error: Unable to contact slurm controller"), "slurmctld does not say"),
    ],
)
def test_who_has_no_running_job_on_the_node_is_told_so(jail: Path, answer: Result, said: str) -> None:
    runner = FakeRunner({"/usr/bin/squeue": answer})
    found = refusal("bob", "gpu-0", runner, jail)
    assert found == said or (said and found.startswith(said))
    assert "--user=10002" in runner.commands[0]


def test_a_jail_without_the_program_of_a_session_lets_nobody_in(jail: Path) -> None:
    (jail / "usr/libexec/slurmstack/ssh-session").rename(jail / "ssh-session")
    (jail / "usr/libexec/slurmstack/ssh-session").symlink_to("/bin/sh")  # there is one outside
    assert "see docs/jail.md" in refusal("bob", "gpu-0", FakeRunner(), jail)


def test_processes_of_users_without_a_job_are_ended_and_nobody_s_where_slurm_does_not_answer(jail: Path) -> None:
    del jail  # numbers of its users

    def ended(answer: Callable[[Sequence[str]], Result] | Result) -> set[str]:
        ps = Result(code=0, stdout="    0\n10001\n10002\n65534\n  101\n10003\n  500\n10001\n")
        runner = FakeRunner({"/usr/bin/ps": ps, "/usr/bin/squeue": answer, "/usr/bin/pkill": Result(code=0)})
        with contextlib.suppress(OSError):
            end_without_job("gpu-0", runner)
        assert sum("--user=10001" in command for command in runner.commands) <= 1, "once for all processes of a user"
        return {command.split()[-1] for command in runner.commands if command.startswith("/usr/bin/pkill -KILL --uid")}

    assert ended(Result(code=1, stderr="away")) == set()

    def answer(argv: Sequence[str]) -> Result:
        if "--user=10003" in argv:
            return Result(code=0, stderr="squeue: error: Invalid user: 10003")
        return Result(code=0, stdout="10002 SUSPENDED 1 1\n10003 RUNNING 2 2\n10001 COMPLETING 3 3\n")

    assert ended(answer) == {"10001", "65534", "500"}


class _EndedError(Exception):
    """What os._exit() would do."""


def test_who_ends_connections_is_closed_to_root_in_the_jail_goes_on_without_an_answer_and_takes_sshd_along(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[object] = []

    def fail(*_: object) -> None:
        raise _EndedError

    def look(node: str) -> None:
        told.append(node)
        if len(told) > 2:
            raise SystemExit(143)  # SIGTERM
        raise OSError("slurmctld is away")

    monkeypatch.setattr(os, "fork", lambda: 0)
    monkeypatch.setattr(os, "setsid", lambda: None)
    monkeypatch.setattr(os, "_exit", fail)
    monkeypatch.setattr(os, "kill", lambda pid, number: told.append((pid, number)))
    monkeypatch.setattr(time, "sleep", lambda _: None)
    monkeypatch.setattr(worker_ssh, "keep_only", lambda *names: told.append(names))
    monkeypatch.setattr(worker_ssh, "end_without_job", look)
    log = io.StringIO()
    with pytest.raises(_EndedError):
        start_ending("gpu-0", Log("worker-sshd", log))
    # Root of a session has KILL and lacks SYS_CHROOT (images/common/native/capabilities.h).
    assert told == [("KILL", "SYS_CHROOT"), "gpu-0", "gpu-0", (os.getpid(), signal.SIGTERM)]
    assert "slurmctld is away" in log.getvalue()
