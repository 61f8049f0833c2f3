"""kubectl as a program that may not answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.errors import Failure
from cli.kubectl.client import Kubectl, in_controller, slurm


@pytest.fixture
def silent(tmp_path: Path) -> Kubectl:
    """It never ends: the machine of the pod is lost."""
    program = tmp_path / "kubectl"
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    program.chmod(0o755)
    return Kubectl(program=str(program), context="test", kubeconfig=None)


def test_a_pod_whose_machine_is_lost_is_not_waited_for(silent: Kubectl, monkeypatch: pytest.MonkeyPatch) -> None:
    done = in_controller(silent, "slurm", "squeue", seconds=0.1)
    assert (done.returncode, done.stdout, done.stderr) == (124, "", "no answer within 0.1 s")
    monkeypatch.setattr("cli.kubectl.client.ANSWER_SECONDS", 0.1)
    assert slurm(silent, "slurm", "sinfo") == ""
    with pytest.raises(Failure, match=r"no answer within 0\.1 s"):
        silent.run("exec", "login-0", seconds=0.1)
