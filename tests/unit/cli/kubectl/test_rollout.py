"""What an apply waits for."""

from __future__ import annotations

from collections.abc import Sequence
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


class Machines(Empty):
    """Two machines and a DaemonSet on them, as told; `lost`: one of the machines is silent."""

    def __init__(self, *, lost: bool = False, pods: Sequence[dict[str, Any]] = (), **status: int) -> None:
        self._lost = lost
        self._pods = [*pods]
        self._status = {"observedGeneration": 2, **status}

    def items(self, kind: str, *words: str) -> list[dict[str, Any]]:
        labels = {"app.kubernetes.io/component": "log-shipper"}
        if kind == "daemonset":
            metadata = {"name": "log-shipper", "generation": 2}
            return [
                {"kind": "DaemonSet", "metadata": metadata, "status": self._status,
                 "spec": {"selector": {"matchLabels": labels}}},
            ]  # fmt: skip
        if kind == "node":
            conditions = [
                [{"type": "Ready", "status": status}] for status in ("True", "Unknown" if self._lost else "True")
            ]
            return [
                {"metadata": {"name": f"m-{number}"}, "status": {"conditions": conditions[number]}} for number in (0, 1)
            ]
        if kind == "pod" and "app.kubernetes.io/component=log-shipper" in words:
            return [{"spec": {"nodeName": "m-0"}}, {"spec": {"nodeName": "m-1"}}]
        return self._pods if kind == "pod" else []


SHIPPER = Manifest(urn="", document={"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "log-shipper"}})


@pytest.mark.parametrize(
    ("status", "ready"),
    [
        ({"desiredNumberScheduled": 2, "numberReady": 1, "updatedNumberScheduled": 2}, "1 of 2"),
        ({"desiredNumberScheduled": 2, "numberReady": 2, "updatedNumberScheduled": 1}, "1 of 2"),
        ({"desiredNumberScheduled": 2, "numberReady": 2}, "0 of 2"),
        (
            {"desiredNumberScheduled": 2, "numberReady": 2, "updatedNumberScheduled": 2, "observedGeneration": 1},
            "2 of 2",
        ),
    ],
)
def test_a_daemon_set_is_waited_for_until_its_pods_are_new_and_ready(status: dict[str, Any], ready: str) -> None:
    told: list[str] = []
    with pytest.raises(Failure, match=rf"log-shipper \({ready} ready\)"):
        await_rollout(cast("Kubectl", Machines(**status)), [SHIPPER], namespace="slurm", timeout=-1, tell=told.append)
    assert told == [f"waiting for log-shipper ({ready} ready)"]


@pytest.mark.parametrize(
    "cluster",
    [
        Machines(desiredNumberScheduled=2, numberReady=2, updatedNumberScheduled=2),
        Machines(desiredNumberScheduled=0, numberReady=0),
        Machines(lost=True, desiredNumberScheduled=2, numberReady=1, updatedNumberScheduled=2),
    ],
    ids=["ready", "no machine", "lost machine"],
)
def test_a_daemon_set_is_ready_whose_pods_are_and_a_lost_machine_keeps_nobody(cluster: Machines) -> None:
    await_rollout(cast("Kubectl", cluster), [SHIPPER], namespace="slurm", timeout=-1, tell=lambda _: None)
