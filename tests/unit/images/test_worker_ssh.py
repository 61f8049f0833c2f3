"""ssh to workers: who gets in, what ends, which job a session is in and what it is given, which host key is known."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from images.common.command import Result
from images.jail.known_host import known_host
from images.jail.ssh_session import environment, newest_job
from images.login.worker_ssh import NoAnswerError, end_without_job, refusal
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
        ("18 17_1\n12 12\n", ["--jobid=18"]),
        ("12 11+1\n9 9\n", ["--jobid=11", "--het-group=1"]),
        ("", []),
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


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Result(code=0, stdout="0\n10002\n"), ""),
        (Result(code=0, stdout="10003\n"), "you have no job on gpu-0"),
        (Result(code=1, stderr="slurm_load_jobs error: Unable to contact slurm controller"), "slurmctld does not say"),
    ],
)
def test_who_has_no_running_job_on_the_node_is_told_so(
    monkeypatch: pytest.MonkeyPatch, answer: Result, said: str
) -> None:
    account = pwd.struct_passwd(("bob", "x", 10002, 10002, "", "/home/bob", "/bin/bash"))
    monkeypatch.setattr(pwd, "getpwnam", lambda _: account)
    found = refusal("bob", "gpu-0", FakeRunner({"/usr/bin/squeue": answer}))
    assert found == said or (said and found.startswith(said))


def test_processes_of_users_without_a_job_are_ended_and_nobody_s_where_slurm_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for pid, uid in {1: 0, 20: 10001, 21: 10002, 22: 65534, 23: 101, 24: 10003}.items():
        (tmp_path / str(pid)).mkdir()
        (tmp_path / f"{pid}/status").write_text(f"Name:\tsshd-session\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")
    ended: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, _: ended.append(pid))

    with pytest.raises(NoAnswerError, match="away"):
        end_without_job("gpu-0", FakeRunner({"/usr/bin/squeue": Result(code=1, stderr="away")}), tmp_path)
    assert ended == []

    runner = FakeRunner({"/usr/bin/squeue": Result(code=0, stdout="10002\n")})
    end_without_job("gpu-0", runner, tmp_path)
    assert sorted(ended) == [20, 24]
    assert "--states=running,suspended" in runner.commands[0]
