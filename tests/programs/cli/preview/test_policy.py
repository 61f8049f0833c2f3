"""The policy in preview and up: asked of Slurm where it runs, told from nothing where it does not."""

from __future__ import annotations

import os
import subprocess
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from cli.errors import Failure
from cli.kubectl.client import NO_SLURMDBD, Kubectl, if_slurmdbd_answers
from cli.preview.policy import (
    planned_policy,
    print_silence,
    require_answer,
)
from config import load_config
from config.cluster import ClusterConfig
from tests import stacks

UID_LABEL = "batch.kubernetes.io/controller-uid"


def configuration(**sections: Any) -> ClusterConfig:
    users = {"alice": {"uid": 10001, "accounts": ["ml"]}}
    return load_config({**stacks.dev(), "users": users, "accounts": {"ml": {"fairshare": 10}}, **sections})


@dataclass(frozen=True, kw_only=True)
class FakeKubectl(Kubectl):
    """Answers from what is given here; notes what it was asked."""

    program: str = "kubectl"
    context: str = ""
    kubeconfig: str | None = None
    ready: str = "True"
    printed: str = ""
    complained: str = ""
    code: int = 0
    job_state: str = "Complete"
    calls: list[tuple[str, ...]] = field(default_factory=list)
    stdin: list[str] = field(default_factory=list)

    def run(
        self, *arguments: str, stdin: str | None = None, check: bool = True, **_: float
    ) -> subprocess.CompletedProcess[str]:
        assert not check or not self.complained
        self.calls.append(arguments)
        self.stdin.append(stdin or "")
        return subprocess.CompletedProcess(
            arguments, self.code or int(bool(self.complained)), self.printed, self.complained
        )

    def items(self, *arguments: str) -> list[dict[str, Any]]:
        if UID_LABEL in arguments:
            ended = [{"state": {"terminated": {"exitCode": 0 if self.job_state == "Worked" else 1}}}]
            labels = {UID_LABEL: "u1"}
            return [{"metadata": {"labels": labels}, "status": {"containerStatuses": ended}}]
        if arguments[0] == "pod":
            return [{"status": {"conditions": [{"type": "Ready", "status": self.ready}]}}] if self.ready else []
        status = {"conditions": [{"type": self.job_state, "status": "True"}]}
        return [{"metadata": {"uid": "u1", "name": "policy-12345678"}, "status": status}] if self.job_state else []


@pytest.mark.parametrize(("sacctmgr", "silent"), [("exit 0", False), ("exit 1", False), ("exit 124", True)])
def test_a_slurmdbd_that_hangs_is_said_within_seconds_and_is_not_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], sacctmgr: str, silent: bool
) -> None:
    (tmp_path / "sacctmgr").write_text(f"#!/bin/sh\n{sacctmgr}\n", encoding="utf-8")
    (tmp_path / "sacctmgr").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    done = subprocess.run(if_slurmdbd_answers(["cat"]), input="{}", capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == ((NO_SLURMDBD, "") if silent else (0, "{}"))
    kubectl = FakeKubectl(complained="command terminated", code=done.returncode)
    planned = planned_policy(kubectl, configuration())
    assert planned is not None
    assert planned.silent == silent
    print_silence(planned)
    assert ("cannot be compared: slurmdbd does not answer" in capsys.readouterr().out) == silent
    with pytest.raises(Failure, match="slurmdbd does not answer") if silent else nullcontext():
        require_answer(kubectl, configuration(), planned)
    require_answer(FakeKubectl(printed='{"changes": [], "notes": []}'), configuration(), planned)
