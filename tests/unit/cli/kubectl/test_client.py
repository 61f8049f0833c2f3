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


ASKED: list[str] = []


class TwoControllers(Kubectl):
    """Of which the second one is active."""

    def run(self, *arguments: str, **_: Any) -> subprocess.CompletedProcess[str]:
        ASKED.append(arguments[0])
        if arguments[0] == "get":
            return subprocess.CompletedProcess(arguments, 0, "controller-1", "")
        stands_by = "controller-1" not in arguments
        return subprocess.CompletedProcess(arguments, int(stands_by), "" if stands_by else "the queue", "no slurm.conf")


def test_the_active_one_of_two_controllers_is_found_and_remembered() -> None:
    two = TwoControllers(program="kubectl", context="test", kubeconfig=None)
    assert [in_controller(two, "slurm", "squeue").stdout for _ in range(2)] == ["the queue", "the queue"]
    assert ASKED == ["exec", "get", "exec", "exec"]


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


def test_a_pod_whose_machine_is_lost_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    silent = says(monkeypatch, lambda _: (HANGS, "", ""))
    done = in_controller(silent, "slurm", "squeue", seconds=0.1)
    assert (done.returncode, done.stdout, done.stderr) == (124, "", "no answer within 0.1 s")
    assert slurm(silent, "slurm", "sinfo") == ""
    with pytest.raises(Failure, match=r"no answer within 0\.1 s"):
        silent.run("exec", "login-0", seconds=0.1)
