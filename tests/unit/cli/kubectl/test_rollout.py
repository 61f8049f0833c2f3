"""What an apply waits for."""

from __future__ import annotations

from typing import Any, cast

import pytest

from cli.errors import Failure
from cli.kubectl.client import Kubectl
from cli.kubectl.rollout import await_rollout, require_slurmctld
from cli.program.manifests import Manifest
from tests.fakes.queue_cluster import FakeKubectl
from tests.fakes.slurmctld import AWAY

WHY = "Failed to create pod sandbox: runtime does not support user namespaces"


class Empty:
    """A cluster in which somebody has deleted everything, and whose machines cannot make pods."""

    def items(self, kind: str, *_: str) -> list[dict[str, Any]]:
        if kind == "event":
            about = {"waits": WHY, "waits-too": WHY, "made-later": "of an hour ago"}
            return [{"involvedObject": {"name": name}, "message": message} for name, message in about.items()]
        phases = {"waits": "Pending", "waits-too": "Pending", "made-later": "Running"} if kind == "pod" else {}
        return [{"metadata": {"name": name}, "status": {"phase": phase}} for name, phase in phases.items()]


@pytest.mark.parametrize("kind", ["StatefulSet", "Deployment"])
def test_what_somebody_has_deleted_meanwhile_is_not_ready(kind: str) -> None:
    item = Manifest(urn="", document={"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "database"}})
    with pytest.raises(Failure, match=r"database \(deleted by somebody\)") as failure:
        await_rollout(cast("Kubectl", Empty()), [item], namespace="slurm", timeout=-1, tell=lambda _: None)
    assert failure.value.message.count(WHY) == 1
    assert "of an hour ago" not in failure.value.message


class Waiting(Empty):
    """Machines cannot make pods, and a Job has waited for one until its time was over."""

    def items(self, kind: str, *_: str) -> list[dict[str, Any]]:
        words = "Job was active longer than specified deadline"
        failed = {"type": "Failed", "status": "True", "reason": "DeadlineExceeded", "message": words}
        job = {"kind": "Job", "metadata": {"name": "config-1"}, "status": {"conditions": [failed]}}
        if kind == "pod" and any(word.startswith("job-name=") for word in _):
            return []
        return [job] if kind == "job" else super().items(kind)


def test_a_job_whose_time_is_over_says_which_pods_are_not_ready() -> None:
    item = Manifest(urn="", document={"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "config-1"}})
    with pytest.raises(Failure, match="the Slurm configuration failed: Job was active longer") as failure:
        await_rollout(cast("Kubectl", Waiting()), [item], namespace="slurm", timeout=900, tell=lambda _: None)
    assert WHY in failure.value.message
    assert "slurmstack status" in failure.value.hint


def test_an_update_is_not_whole_while_slurmctld_does_not_answer() -> None:
    require_slurmctld(FakeKubectl(), "slurm")
    with pytest.raises(Failure, match=f"slurmctld does not answer: .*{AWAY[:20]}"):
        require_slurmctld(FakeKubectl(queue=None), "slurm")
