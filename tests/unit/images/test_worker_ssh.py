"""ssh to workers: who gets in, what ends, which job a session is in and what it is given, which host key is known."""

from __future__ import annotations

import io
import os
import pwd
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from images.common.command import Result
from images.common.log import Log
from images.jail.known_host import known_host
from images.jail.ssh_session import environment, newest_job
from images.login import worker_ssh
from images.login.worker_ssh import NoAnswerError, end_without_job, limits_of, refusal, start_ending
from tests.fakes.commands import FakeRunner


def test_a_session_has_nothing_of_slurm_s_and_keeps_what_names_the_job_s_gpus() -> None:
    account = pwd.struct_passwd(("alice", "x", 10001, 10001, "", "/home/alice", "/bin/bash"))
    given = {
        "SLURM_JOB_ID": "7", "SLURMD_NODENAME": "default-0", "PMIX_RANK": "0", "SRUN_DEBUG": "3",
        "HOME": "/nonexistent",
        "OMPI_MCA_plm_slurm_args": "--external-launcher", "SSH_CONNECTION": "10.0.0.1 40000 10.0.0.2 22",
        "SSH_ORIGINAL_COMMAND": "env", "LC_ALL": "C", "TERM": "xterm", "CUDA_VISIBLE_DEVICES": "0,1",
    }  # fmt: skip
    assert environment(account, given) == {
        "SSH_CONNECTION": "10.0.0.1 40000 10.0.0.2 22", "LC_ALL": "C", "TERM": "xterm", "CUDA_VISIBLE_DEVICES": "0,1",
        "USER": "alice", "LOGNAME": "alice", "HOME": "/home/alice", "SHELL": "/bin/bash", "MAIL": "/var/mail/alice",
        "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/games",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("listed", "options"),
    [
        ("RUNNING 18 17_1\nRUNNING 12 12\n", ["--jobid=18"]),
        ("COMPLETING 13 13\nSIGNALING 12 11+1\nRUNNING 9 9\n", ["--jobid=11", "--het-group=1"]),
        ("SUSPENDED 12 12\n", []),
    ],
)
def test_the_job_that_started_last_is_taken_as_srun_wants_it_called(listed: str, options: list[str]) -> None:
    runner = FakeRunner({"/usr/bin/squeue": Result(code=0, stdout=listed)})
    assert newest_job("gpu-0", runner) == options
    assert "--sort=-S,-i" in runner.commands[0]


@pytest.mark.parametrize(
    ("host", "known"),
    [("gpu-0", True), ("big-mem-12", True), ("login-0", False), ("gpu-0.example.com", False), ("gpu", False)],
)
def test_the_key_of_workers_is_known_for_names_of_their_nodes_alone(tmp_path: Path, host: str, known: bool) -> None:
    key, conf = tmp_path / "key", tmp_path / "slurm.conf"
    key.write_text("ssh-ed25519 AAAA\n")
    conf.write_text("ClusterName=a\nNodeSet=gpu Feature=gpu\nNodeSet=big-mem Feature=big-mem\n")
    assert known_host(host, key, conf) == (f"{host} ssh-ed25519 AAAA\n" if known else "")


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
        (Result(code=0, stdout="10002 COMPLETING\n10002 RUNNING\n"), ""),
        (Result(code=0, stdout="10002 STOPPED\n"), ""),
        (Result(code=0, stdout="10002 SUSPENDED\n10002 COMPLETING\n"), "you have no job on gpu-0"),
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


def test_processes_of_users_without_a_job_are_ended_and_nobody_s_where_slurm_does_not_answer(
    jail: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for pid, uid in {1: 0, 20: 10001, 21: 10002, 22: 65534, 23: 101, 24: 10003, 25: 500, 26: 10001}.items():
        (jail / str(pid)).mkdir()
        (jail / f"{pid}/status").write_text(f"Name:\tsshd-session\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")
    ended: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, _: ended.append(pid))

    with pytest.raises(NoAnswerError, match="away"):
        end_without_job("gpu-0", FakeRunner({"/usr/bin/squeue": Result(code=1, stderr="away")}), jail)
    assert ended == []

    def answer(argv: Sequence[str]) -> Result:
        if "--user=10003" in argv:
            return Result(code=0, stderr="squeue: error: Invalid user: 10003")
        return Result(code=0, stdout="10002 SUSPENDED\n10003 RUNNING\n10001 COMPLETING\n")

    runner = FakeRunner({"/usr/bin/squeue": answer})
    end_without_job("gpu-0", runner, jail)
    assert sorted(ended) == [20, 22, 25, 26]
    assert sum("--user=10001" in command for command in runner.commands) == 1, "once for all processes of a user"


class _EndedError(Exception):
    """What os._exit() would do."""


def test_who_ends_connections_is_closed_to_root_in_the_jail_goes_on_after_a_fault_and_takes_sshd_along(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[object] = []

    def fail(*_: object) -> None:
        raise _EndedError

    def look(node: str) -> None:
        told.append(node)
        if len(told) > 2:
            raise SystemExit(143)  # SIGTERM
        raise ValueError("a fault of ours")

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
    assert "a fault of ours" in log.getvalue()


def test_one_user_has_at_most_half_of_the_memory_for_connections_whatever_login_nodes_give() -> None:
    assert limits_of("nproc=200 total_memory=4294967296 nofile=99", 2**30) == {"total_memory": 2**29, "nofile": 99}
    assert limits_of("total_memory=1000", 2**30) == {"total_memory": 1000}
    assert limits_of("", 2**30) == {}
