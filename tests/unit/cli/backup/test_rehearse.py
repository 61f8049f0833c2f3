"""A rehearsal from its begin to its end, with a played cluster: whatever happens, nothing of it stays."""

from __future__ import annotations

import io
import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from cli.backup import rehearse, throwaway
from cli.backup.rehearse import Rehearsal
from cli.errors import Failure
from cli.kubectl.client import Kubectl
from cli.stack import Stack
from config import load_config
from local.report import PlainReport
from tests import stacks

FULL = stacks.existing_full()
TOLD: dict[str, dict[str, Any]] = {
    "state": {"scripts": [3]},
    "database": {"records": 2, "open": [[3, 0, 900]], "newest": [2, 3]},
    "jail": {"files": 7, "bytes": 70, "different": 0, "named": []},
}


class Cluster:
    """One in which all starts at once, and Slurm answers what it is told to."""

    def __init__(self) -> None:
        self.namespaces: dict[str, dict[str, str]] = {}
        self.rehearsed = ""
        self.sent: list[dict[str, Any]] = []
        self.said: list[str] = []
        self.events: list[dict[str, Any]] = []
        self.pod: dict[str, Any] = {
            "metadata": {"name": "controller-0"},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        }
        self.answers = {"squeue": "3\n", "sacct": "2\n3\n"}

    def items(self, kind: str, *arguments: str) -> list[dict[str, Any]]:
        if kind == "namespace":
            found = self.namespaces.get(arguments[0])
            return [] if found is None else [{"metadata": {"name": arguments[0], "labels": found}}]
        if kind == "secret":
            names = arguments[: arguments.index("-n")]
            return [
                {"metadata": {"name": name, "uid": "1"}, "type": "Opaque", "data": {"password": "c2VjcmV0"}}
                for name in names
            ]
        if kind == "event":
            return self.events
        return [self.pod] if kind == "pod" and self.pod else []

    def run(self, *arguments: str, stdin: str | None = None, **_: Any) -> subprocess.CompletedProcess[str]:
        if arguments[0] == "create" and stdin:
            namespace = json.loads(stdin)
            self.namespaces[namespace["metadata"]["name"]] = namespace["metadata"]["labels"]
        elif arguments[0] == "apply":
            self.sent += json.loads(stdin or "")["items"]
        elif arguments[:2] == ("patch", "cronjob"):
            self.rehearsed = json.loads(arguments[-1])["status"]["lastSuccessfulTime"]
        elif arguments[:2] == ("delete", "namespace"):
            self.namespaces.pop(arguments[2], None)
        elif arguments[0] == "exec":
            command = next(word for word in arguments if word in self.answers)
            return subprocess.CompletedProcess([], 0, self.answers[command], "")
        self.said.append(" ".join(arguments))
        return subprocess.CompletedProcess([], 0, "", "")

    @property
    def kubectl(self) -> Kubectl:
        return cast("Kubectl", self)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    played = Cluster()

    @contextmanager
    def held(*_: Any, **__: Any) -> Iterator[Any]:
        yield

    def run_job(_: Any, namespace: str, template: str, *__: Any, **how: Any) -> str:
        played.said.append(f"{template} in {namespace}: {' '.join(sorted(how['only']))}")
        wanted = how["env"]["WHAT"].split()
        return "\n".join(f"rehearsal: {json.dumps({'part': part, **TOLD[part]})}" for part in wanted)

    monkeypatch.setattr(rehearse, "held", held)
    monkeypatch.setattr(rehearse, "run_job", run_job)
    monkeypatch.setattr(rehearse, "chosen", lambda *_: {"id": "20261126T020000Z"})
    return played


def rehearsal(cluster: Cluster, sections: dict[str, Any] | None = None, **options: Any) -> Rehearsal:
    found = sections or stacks.existing_full()
    stack = Stack(name="prod", file=Path("x"), sections=found, config=load_config(found))
    return Rehearsal(cluster.kubectl, stack, PlainReport(io.StringIO()), **options)


def test_a_good_backup_is_put_back_started_compared_and_gone_and_the_cluster_knows(cluster: Cluster) -> None:
    outcome = rehearsal(cluster).run()
    assert not outcome.problems
    assert {"slurmdbd", "slurmctld", "total"} == outcome.seconds.keys()
    restored = "restore in slurm-rehearsal: restore-choose restore-database restore-jail restore-look restore-state"
    started = [line.split()[2] for line in cluster.said if line.startswith("patch statefulset")]
    assert restored in cluster.said
    assert started == ["slurmdbd", "controller"]
    assert not cluster.namespaces
    assert cluster.rehearsed
    (copy,) = [item for item in cluster.sent if item["kind"] == "Secret" and item["metadata"]["name"] == "backup"]
    assert copy["data"] == {"password": "c2VjcmV0"}
    assert {item["metadata"]["namespace"] for item in cluster.sent} == {"slurm-rehearsal"}
    assert "c2VjcmV0" not in "\n".join(cluster.said)


def test_what_is_not_as_it_was_is_kept_as_a_failure_and_does_not_count(cluster: Cluster) -> None:
    cluster.answers["squeue"] = ""
    outcome = rehearsal(cluster).run()
    assert outcome.problems == ["state: slurmctld has lost jobs of the queue: 3"]
    assert not cluster.rehearsed
    assert not cluster.namespaces


def test_what_a_killed_one_has_left_goes_first(cluster: Cluster) -> None:
    cluster.namespaces["slurm-rehearsal"] = {throwaway.OF: "slurm"}
    assert not rehearsal(cluster).run().problems
    removed = "delete namespace slurm-rehearsal --ignore-not-found --wait=false"
    assert cluster.said.index(removed) < next(number for number, line in enumerate(cluster.said) if "apply" in line)
    assert cluster.said.count(removed) == 2


def test_a_namespace_of_somebody_else_is_left_alone(cluster: Cluster) -> None:
    cluster.namespaces["slurm-rehearsal"] = {"app.kubernetes.io/part-of": "slurmstack"}
    with pytest.raises(Failure, match="is not of a rehearsal of slurm"):
        rehearsal(cluster).run()
    assert not cluster.said


RUNS: dict[str, Any] = {"state": {"running": {}}}
WAITS: dict[str, Any] = {"state": {"waiting": {}}}


@pytest.mark.parametrize(("statuses", "runs"), [([], False), ([RUNS], True), ([RUNS, WAITS], False)])
def test_a_pod_that_does_not_run_is_not_waited_for_for_hours(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, statuses: list[dict[str, Any]], *, runs: bool
) -> None:
    """A quota keeps it from being made; there is no room, or no image; it ends again and again."""
    monkeypatch.setattr(rehearse, "STUCK", -1)
    monkeypatch.setattr(rehearse, "_POLL", 0.0)
    items, looks = Cluster.items, iter(range(1, 10**9))

    def slow(self: Cluster, kind: str, *arguments: str) -> list[dict[str, Any]]:
        if (kind, arguments[0]) == ("pod", "slurmdbd-0") and next(looks) < 5:
            return [{"status": {"containerStatuses": statuses}}] if statuses else []
        return items(self, kind, *arguments)

    monkeypatch.setattr(Cluster, "items", slow)
    cluster.events = [{"message": "exceeded quota", "involvedObject": {"name": "slurmdbd"}}]
    if runs:
        assert not rehearsal(cluster).run().problems, "it converts its tables"
    else:
        with pytest.raises(Failure, match=r"slurmdbd of the rehearsal was not ready .*: exceeded quota"):
            rehearsal(cluster).run()
    assert not cluster.namespaces


def test_what_a_lost_log_has_not_told_is_not_taken_for_good(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rehearse, "run_job", lambda *_, **__: "")
    with pytest.raises(Failure, match="is lost"):
        rehearsal(cluster).run()
    assert not cluster.rehearsed


def test_on_the_local_cluster_its_directories_go_and_those_of_others_never(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SLURMSTACK_LOCAL_DIR", str(tmp_path))
    place, sections = tmp_path / "volumes/slurm-rehearsal/jail", {**stacks.dev(), "backup": FULL["backup"]}
    place.mkdir(parents=True)
    with pytest.raises(Failure, match="there are files of volumes of slurm-rehearsal") as caught:
        rehearsal(cluster, sections).run()
    assert str(caught.value.hint).endswith(f"rm -r {tmp_path}/volumes/slurm-rehearsal")
    assert place.exists()
    place.rmdir()
    assert not rehearsal(cluster, sections).run().problems
    assert not place.parent.exists()
