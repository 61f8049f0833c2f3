"""What an apply waits for."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, cast

import pytest

from cli.errors import Failure
from cli.kubectl import rollout
from cli.kubectl.client import Kubectl
from cli.kubectl.rollout import await_rollout, require_slurmctld
from cli.program.manifests import Manifest
from tests.fakes.queue_cluster import FakeKubectl
from tests.fakes.slurmctld import AWAY

WHY = "Failed to create pod sandbox: runtime does not support user namespaces"


def warning(reason: str, name: str, message: str, kind: str = "Pod") -> dict[str, Any]:
    return {"reason": reason, "involvedObject": {"kind": kind, "name": name}, "message": message}


class Empty:
    """A cluster in which somebody has deleted everything, and whose machines cannot make pods."""

    def items(self, kind: str, *_: str) -> list[dict[str, Any]]:
        if kind == "event":
            about = {"waits": WHY, "waits-too": WHY, "made-later": "of an hour ago"}
            return [warning("FailedCreatePodSandBox", name, message) for name, message in about.items()]
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

    def __init__(
        self, *, lost: bool = False, pods: Sequence[Any] = (), events: Sequence[Any] = (), **status: int
    ) -> None:
        self._lost = lost
        self._others = {"pod": [*pods], "event": [*events]}
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
        return self._others.get(kind, [])


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


def pod(name: str, owner: str, kind: str = "DaemonSet", **state: Any) -> dict[str, Any]:
    """One whose container is in that state, and not ready."""
    container = {"name": "main", "ready": False, "state": state}
    owners = [{"kind": kind, "name": owner}]
    return {"metadata": {"name": name, "ownerReferences": owners}, "status": {"containerStatuses": [container]}}


PULL: dict[str, Any] = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
PENDING = {"metadata": {"name": "log-shipper-a"}, "status": {"phase": "Pending"}}
FORBIDDEN = 'pods "log-shipper-" is forbidden: violates PodSecurity'


@pytest.mark.parametrize(
    ("pods", "events", "why"),
    [
        ([pod("log-shipper-a", "log-shipper", **PULL)], [], "log-shipper-a/main: ImagePullBackOff no such image"),
        (
            [], [warning("FailedCreate", "log-shipper", FORBIDDEN, "DaemonSet")],
            f"pods of log-shipper cannot be made: {FORBIDDEN}",
        ),
        ([PENDING], [warning("FailedMount", "log-shipper-a", "no /var/log/pods")], "log-shipper-a: no /var/log/pods"),
        (
            [pod("log-shipper-a", "log-shipper", running={})],
            [warning("Unhealthy", "log-shipper-a", "Readiness probe failed: refused")],
            "log-shipper-a/main: runs, but is not ready: Readiness probe failed: refused",
        ),
        (
            [pod("log-shipper-a", "log-shipper", terminated={"message": "bad endpoint"})], [],
            "log-shipper-a/main: has ended\n    bad endpoint",
        ),
    ],
    ids=["image", "forbidden", "mount", "probe", "end"],
)  # fmt: skip
def test_why_pods_of_a_daemon_set_are_not_ready_is_said(pods: Sequence[Any], events: Sequence[Any], why: str) -> None:
    others = [pod("gpu-0", "gpu", "StatefulSet", running={}), pod("exporter-12-a", "exporter-12", "ReplicaSet")]
    cluster = Machines(desiredNumberScheduled=2, pods=[*pods, *others], events=[*events])
    with pytest.raises(Failure) as failure:
        await_rollout(cast("Kubectl", cluster), [SHIPPER], namespace="slurm", timeout=-1, tell=lambda _: None)
    assert failure.value.message == f"after -1 s still not ready: log-shipper (0 of 2 ready)\n  {why}"


def test_a_login_node_that_waits_for_its_sessions_is_said_where_the_update_waits_for_it() -> None:
    """Their number is a fixed one again, and Kubernetes takes the new pods only when the old ones have ended."""
    leaves = pod("login-0", "login", "StatefulSet", running={})
    leaves["metadata"] |= {
        "deletionTimestamp": "2026-11-27T16:00:00Z", "labels": {"app.kubernetes.io/component": "login"}
    }  # fmt: skip
    leaves["status"]["containerStatuses"][0]["ready"] = True
    item = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "login"}}

    class Late(Machines):
        shown = "kubectl --context test"

        def items(self, kind: str, *words: str) -> list[dict[str, Any]]:
            there = {**item, "metadata": {"name": "login", "generation": 1}, "spec": {"replicas": 2}}
            return [there] if kind == "statefulset" else super().items(kind, *words)

    cluster = cast("Kubectl", Late(pods=[leaves], events=[]))
    with pytest.raises(Failure) as failure:
        await_rollout(cluster, [Manifest(urn="", document=item)], namespace="slurm", timeout=-1, tell=lambda _: None)
    (told,) = failure.value.message.splitlines()[1:]
    assert told == (
        "  login-0: leaves, and is ended at 2026-11-27T16:00:00Z at the latest; "
        "`kubectl --context test exec -n slurm login-0 -c sshd -- pkill -u 0 -f slurmstack/leave` ends its sessions"
    )


def test_a_deployments_pods_are_told_apart_from_those_of_others() -> None:
    forbidden = warning("FailedCreate", "exporter-12", "exceeded quota", "ReplicaSet")
    pods = [pod("exporter-12-a", "exporter-12", "ReplicaSet", running={}), pod("gpu-0", "gpu", running={})]
    item = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "exporter"}}

    class Late(Machines):
        def items(self, kind: str, *words: str) -> list[dict[str, Any]]:
            there = {**item, "metadata": {"name": "exporter", "generation": 1}, "spec": {"replicas": 1}}
            return [there] if kind == "deployment" else super().items(kind, *words)

    cluster = cast("Kubectl", Late(pods=pods, events=[forbidden]))
    with pytest.raises(Failure) as failure:
        await_rollout(cluster, [Manifest(urn="", document=item)], namespace="slurm", timeout=-1, tell=lambda _: None)
    assert failure.value.message.splitlines()[1:] == [
        "  pods of exporter cannot be made: exceeded quota", "  exporter-12-a/main: runs, but is not ready",
    ]  # fmt: skip


def of_set(name: str, revision: str, state: str) -> dict[str, Any]:
    """A pod of the StatefulSet slurmdbd."""
    labels = {"controller-revision-hash": revision}
    return {
        "metadata": {"name": name, "labels": labels, "ownerReferences": [{"kind": "StatefulSet", "name": "slurmdbd"}]},
        "status": {"containerStatuses": [{"name": "main", "state": {state: {"reason": "ImagePullBackOff"}}}]},
    }


@pytest.mark.parametrize(
    ("policy", "revision", "state", "ended"),
    [
        ("OrderedReady", "of-new", "waiting", True),
        ("OrderedReady", "of-new", "running", False),
        ("OrderedReady", "of-old", "waiting", False),
        ("Parallel", "of-new", "waiting", False),
    ],
)
def test_a_version_that_does_not_start_gives_way_when_the_one_before_is_applied_again(
    monkeypatch: pytest.MonkeyPatch, policy: str, revision: str, state: str, *, ended: bool
) -> None:
    """Not one that runs: it may be converting the database."""
    monkeypatch.setattr(rollout, "STUCK", 0.0)
    monkeypatch.setattr("time.sleep", lambda _: None)
    item = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "slurmdbd", "generation": 1}}
    deleted: list[str] = []

    class Late(Machines):
        shown = "kubectl"

        def items(self, kind: str, *words: str) -> list[dict[str, Any]]:
            ready = {"observedGeneration": 1, "readyReplicas": int(bool(deleted))}
            status = {**ready, "currentRevision": "of-old", "updateRevision": "of-old"}
            there = {**item, "spec": {"replicas": 1, "podManagementPolicy": policy}, "status": status}
            return [there] if kind == "statefulset" else super().items(kind, *words)

        def run(self, *words: str) -> None:
            deleted.append(" ".join(words[:3]))

    cluster = cast(
        "Kubectl", Late(pods=[of_set("slurmdbd-0", revision, state), of_set("other-0", "of-old", "waiting")])
    )
    with nullcontext() if ended else pytest.raises(Failure):
        manifest = Manifest(urn="", document=item)
        await_rollout(cluster, [manifest], namespace="slurm", timeout=0.3, tell=lambda _: None)
    assert deleted == (["delete pod slurmdbd-0"] if ended else [])
