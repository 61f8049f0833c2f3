"""What an apply waits for, and what it says of what does not come."""

from __future__ import annotations

import json
import subprocess
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, cast

import pytest

from cli.change import rollout
from cli.change.rollout import await_rollout
from cli.change.verify import as_user, usable
from cli.errors import Failure
from cli.kubectl.client import Kubectl
from cli.program.recording import Manifest
from cli.stack import open_stack
from images.accounting.conversion import CONVERTING
from tests.fakes.kubectl import PlayedKubectl
from tests.stacks import ROOT


class Cluster:
    """Has these objects of each kind; `of_job`: the pods of a Job."""

    shown = "kubectl --context test"

    def __init__(self, **there: list[dict[str, Any]]) -> None:
        self.there = there
        self.deleted: list[str] = []

    def items(self, kind: str, *words: str) -> list[dict[str, Any]]:
        if kind == "pod" and any(word.startswith("job-name=") for word in words):
            return self.there.get("of_job", [])
        return self.there.get(kind, [])

    def run(self, *words: str, **_: Any) -> subprocess.CompletedProcess[str]:
        if words[0] == "delete":
            self.deleted.append(" ".join(words[:3]))
            for item in self.there.get("statefulset", []):
                item["status"]["readyReplicas"] = item["spec"]["replicas"]
        answer = self.there.get("exec")
        return subprocess.CompletedProcess(words, int(not answer), json.dumps(answer and answer[0]), "Unavailable")


def awaited(kind: str, name: str, **more: Any) -> dict[str, Any]:
    metadata = {"name": name, "generation": 2, **more.pop("metadata", {})}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": more.pop("spec", {"replicas": 2})}


def wait(cluster: Cluster, document: dict[str, Any], told: list[str], *, timeout: float = -1) -> None:
    """`told`: what is said meanwhile."""
    item = Manifest(document=document)
    await_rollout(cast("Kubectl", cluster), [item], namespace="slurm", timeout=timeout, tell=told.append)


def pod(
    name: str, owner: str = "x", kind: str = "StatefulSet", *, last: Any = None, **state: dict[str, Any]
) -> dict[str, Any]:
    """One whose container is in that state, and not ready."""
    container = {"name": "main", "ready": False, "state": state, "lastState": last or {}}
    owners = [{"kind": kind, "name": owner}]
    return {"metadata": {"name": name, "ownerReferences": owners}, "status": {"containerStatuses": [container]}}


def conditions(*types: str, **more: str) -> dict[str, Any]:
    return {"conditions": [{"type": type_, "status": "True", **more} for type_ in types]}


Row = tuple[dict[str, Any], dict[str, list[dict[str, Any]]], list[str]]
"""What is waited for, what is there, and what is said; nothing where it is ready."""

REST = awaited("Deployment", "rest")
LOGIN = awaited("StatefulSet", "login")
WORKERS = awaited(
    "StatefulSet", "cpu", metadata={"annotations": {"pulumi.com/waitFor": "jsonpath={.status.observedGeneration}"}}
)
CONFIG = awaited("Job", "config-12345678", metadata={"uid": "u1"}, spec={
    "template": {"spec": {"containers": [{"name": "await-config", "command": ["await-config", "87654321"]}]}}
})  # fmt: skip
USERS = awaited("Job", "users-12345678", metadata={"uid": "u1"}, spec={})
ENDED = {"terminated": {"exitCode": 0}}


def live(document: dict[str, Any], observed: int = 2, **status: Any) -> dict[str, list[dict[str, Any]]]:
    """It as the cluster has it."""
    return {document["kind"].lower(): [{**document, "status": {"observedGeneration": observed, **status}}]}


def users(state: Any) -> dict[str, list[dict[str, Any]]]:
    """The Job of users at work, with a pod whose container is in this state."""
    metadata = {"name": "p", "labels": {"batch.kubernetes.io/controller-uid": "u1"}}
    status = {"phase": "Running", "containerStatuses": [{"name": "users", "state": state}]}
    return live(USERS, active=1) | {"pod": [{"metadata": metadata, "status": status}]}


UNPLACED = {"pod": [{"metadata": {"name": "login-1"}, "status": {
    "conditions": [{"type": "PodScheduled", "status": "False", "message": "0/2 nodes are available"}]}}]}  # fmt: skip

ROLLOUTS: dict[str, Row] = {
    "an old status": (REST, live(REST, 1, replicas=2, updatedReplicas=2, availableReplicas=2), ["rest (2 of 2 ready)"]),
    "a deployment": (REST, live(REST, replicas=2, updatedReplicas=2, availableReplicas=2), []),
    "gone": (LOGIN, {}, ["login (deleted by somebody)"]),
    "no machine has room": (
        LOGIN,
        live(LOGIN, readyReplicas=1, updatedReplicas=2) | UNPLACED,
        ["login (1 of 2 ready)", "login-1: 0/2 nodes are available"],
    ),
    "an earlier template again": (
        LOGIN,
        live(LOGIN, readyReplicas=2, currentReplicas=1, updatedReplicas=1, currentRevision="a", updateRevision="a"),
        ["login (1 of 2 ready)"],
    ),
    "ends again and again": (
        LOGIN,
        live(LOGIN, readyReplicas=0) | {"pod": [pod(
            "login-0", waiting={"reason": "CrashLoopBackOff", "message": "back-off 10s"},
            last={"terminated": {"exitCode": 2, "message": "the database has a newer schema (99)\n"}})]},
        ["the database has a newer schema (99)"],
    ),
    "workers": (WORKERS, {}, []),
    "a job that failed": (
        CONFIG,
        live(CONFIG, **conditions("Failed")) | {"of_job": [{
            "metadata": {"name": "p", "creationTimestamp": "2026"}, "status": {"containerStatuses": [
                {"name": "c", "state": {"terminated": {"message": "error: unrecognized key: DefMemPerCPUU\n"}}}]}}]},
        ["the Slurm configuration failed: error: unrecognized key: DefMemPerCPUU"],
    ),
    "a job whose time is over": (
        CONFIG,
        live(CONFIG, **conditions("Failed", reason="DeadlineExceeded", message="Job was active longer")) | UNPLACED,
        ["the Slurm configuration failed: Job was active longer", "login-1: 0/2 nodes are available"],
    ),
    "a job that has worked": (USERS, users(ENDED), []),
    "a job to be tried again": (USERS, users({"terminated": {"exitCode": 1}}), ["still not ready: making users"]),
}  # fmt: skip


@pytest.mark.parametrize("name", ROLLOUTS)
def test_it_waits_for_what_is_not_ready_and_says_why(name: str) -> None:
    document, there, said = ROLLOUTS[name]
    cluster, told = Cluster(**there), list[str]()
    if not said:
        wait(cluster, document, told)
        assert told == []
        return
    with pytest.raises(Failure) as failure:
        wait(cluster, document, told)
    if "still not ready: " in failure.value.message:
        first = failure.value.message.splitlines()[0]
        assert told == [f"waiting for {first.partition('still not ready: ')[2]}"]
    assert [part for part in said if part not in failure.value.message] == [], failure.value.message


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
    document = awaited("StatefulSet", "slurmdbd", spec={"replicas": 1, "podManagementPolicy": policy})
    stuck = pod("slurmdbd-0", "slurmdbd", waiting={"reason": "ImagePullBackOff"})
    stuck["status"]["containerStatuses"][0]["state"] = {state: {"reason": "ImagePullBackOff"}}
    other = pod("other-0", "slurmdbd", waiting={})
    stuck["metadata"]["labels"], other["metadata"]["labels"] = (
        {"controller-revision-hash": of} for of in (revision, "of-old")
    )
    there = live(document, readyReplicas=0, currentReplicas=1, currentRevision="of-old", updateRevision="of-old")
    cluster = Cluster(**there, pod=[stuck, other])
    with nullcontext() if ended else pytest.raises(Failure):
        wait(cluster, document, [], timeout=0.2)
    assert set(cluster.deleted) == ({"delete pod slurmdbd-0"} if ended else set())


class Converting(Cluster):
    """A slurmdbd that serves after so many seconds of this clock, and says until then what it converts, or nothing."""

    def __init__(self, seconds: float, words: str) -> None:
        document = awaited("StatefulSet", "slurmdbd", spec={"replicas": 1})
        super().__init__(**live(document, readyReplicas=0, updatedReplicas=1))
        self.document, self.now = document, 0.0
        self._seconds, self._words = seconds, words

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self.now > self._seconds:
            self.there = live(self.document, readyReplicas=1, updatedReplicas=1)

    def run(self, *words: str, **_: Any) -> subprocess.CompletedProcess[str]:
        assert words[:2] == ("logs", "slurmdbd-0")
        return subprocess.CompletedProcess(words, 0, self._words, "")


STATEMENT = f'{CONVERTING}: alter table "dev_job_table"... (altering table, for 77 s)'


@pytest.mark.parametrize("converts", [True, False])
def test_the_time_in_which_slurmdbd_converts_its_database_does_not_count(
    monkeypatch: pytest.MonkeyPatch, *, converts: bool
) -> None:
    cluster, told = Converting(5000, f"slurmdbd: {STATEMENT}\n" if converts else "slurmdbd: starting\n"), list[str]()
    monkeypatch.setattr(rollout, "time", cluster)
    with nullcontext() if converts else pytest.raises(Failure, match="after 900 s still not ready: slurmdbd"):
        wait(cluster, cluster.document, told, timeout=900)
    assert (told[-1] == f"waiting for slurmdbd (0 of 1 ready); {STATEMENT}") == converts


# What counts as a node that the proof of a new cluster may use


@dataclass(frozen=True, kw_only=True)
class Workers(PlayedKubectl):
    """Two worker pods, and slurmctld's word on their nodes."""

    sinfo: str = ""

    def run(
        self, *arguments: str, stdin: str | None = None, check: bool = True, **_: float
    ) -> subprocess.CompletedProcess[str]:
        del stdin, check
        if arguments[0] == "exec":
            return subprocess.CompletedProcess(arguments, 0, self.sinfo, "")
        pods = [
            {"metadata": {"name": name}, "status": {"podIPs": [{"ip": address}]}}
            for name, address in (("default-0", "10.0.0.7"), ("default-1", "10.0.1.8"))
        ]
        return subprocess.CompletedProcess(arguments, 0, json.dumps({"items": pods}), "")


def test_a_node_is_usable_that_has_registered_from_the_pod_that_runs_now() -> None:
    stale = "default-0|10.0.0.7|\ndefault-1|10.0.1.5|\n"  # the second was saved before a power cut
    assert usable(Workers(sinfo=stale), "slurm") == {"default-0"}
    assert usable(Workers(sinfo=""), "slurm") == set()


def test_what_a_user_s_profile_prints_moves_no_cursor() -> None:
    cluster = Workers(sinfo="\x1b[2Jhi\ndefault-0\n")
    assert as_user(cluster, open_stack(ROOT / "Pulumi.dev.yaml"), "alice", "hostname") == " [2Jhi\ndefault-0\n"
