"""kubectl as a program that may not answer."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli.errors import Failure
from cli.kubectl.client import Kubectl, connect, in_controller, slurm
from config.sections.cloud import ExistingCloud


def test_a_kubeconfig_that_is_not_there_is_called_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cli.kubectl.client.find_program", lambda: "kubectl")
    with pytest.raises(Failure, match="there is no file"):
        connect(ExistingCloud(kind="existing", context="mine", kubeconfig=str(tmp_path / "none")))


def says(monkeypatch: pytest.MonkeyPatch, answer: Callable[[list[str]], tuple[int, str, str]]) -> Kubectl:
    """Put a kubectl in place of the real one that ends with this status, output and complaint."""

    def run(command: list[str], *, timeout: float, **_: Any) -> subprocess.CompletedProcess[str]:
        status, out, complaint = answer(command)
        if status == HANGS:
            raise subprocess.TimeoutExpired(command, timeout)
        return subprocess.CompletedProcess(command, status, out, complaint)

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr("cli.kubectl.client.find_program", lambda: "kubectl")
    return Kubectl(program="kubectl", context="mine", kubeconfig=None)


HANGS = -1

MINE = ExistingCloud(kind="existing", context="mine")


def test_a_server_that_refuses_is_told_in_its_words_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    says(monkeypatch, lambda _: (1, "", "error: You must be logged in to the server (Unauthorized)"))
    with pytest.raises(Failure, match="You must be logged in") as caught:
        connect(MINE)
    assert caught.value.hint.startswith("log in to the cluster anew")


@pytest.mark.parametrize(("standby", "pod"), [(False, "controller-0"), (True, "service/controller-0")])
def test_a_command_runs_beside_slurmctld_and_of_two_in_the_active_one(
    monkeypatch: pytest.MonkeyPatch, standby: bool, pod: str
) -> None:
    asked: list[list[str]] = []

    def answer(command: list[str]) -> tuple[int, str, str]:
        asked.append(command)
        return 0, "", ""

    says(monkeypatch, answer)
    in_controller(connect(MINE, standby=standby), "slurm", "squeue")
    assert pod in asked[-1]


def test_a_pod_whose_machine_is_lost_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    silent = says(monkeypatch, lambda _: (HANGS, "", ""))
    done = in_controller(silent, "slurm", "squeue", seconds=0.1)
    assert (done.returncode, done.stdout, done.stderr) == (124, "", "no answer within 0.1 s")
    assert slurm(silent, "slurm", "sinfo") == ""
    with pytest.raises(Failure, match=r"no answer within 0\.1 s"):
        silent.run("exec", "login-0", seconds=0.1)
