"""A rehearsal from its begin to its end, with a played cluster: whatever happens, nothing of it stays."""

from __future__ import annotations

import io
import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cli.backup import rehearse
from cli.backup.rehearse import Rehearsal
from cli.errors import Failure
from cli.kubectl.client import Kubectl
from cli.stack import Stack
from config import load_config
from local.report import PlainReport
from tests import stacks

TOLD = {
    "state": {"saved": 1000, "scripts": [3]},
    "database": {"records": 2, "open": [[3, 0, 10001, 900]], "newest": [2, 3]},
    "jail": {"files": 7, "bytes": 70, "different": 0, "named": []},
}


class Cluster:
    """One in which all starts at once, and Slurm answers what it is told to."""

    def __init__(self) -> None:
        self.namespaces: dict[str, dict[str, str]] = {}
        self.kept: dict[str, str] = {}
        self.rehearsed = ""
        self.lock = SimpleNamespace(is_lost=False)
        self.sent: list[dict[str, Any]] = []
        self.said: list[str] = []
        self.events: list[dict[str, Any]] = []
        self.pod: dict[str, Any] = {
            "metadata": {"name": "controller-0"},
            "status": {
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-26T02:00:09Z"}],
                "containerStatuses": [{"name": "c", "state": {"running": {"startedAt": "2026-11-26T02:00:02Z"}}}],
            },
        }
        self.answers = {"squeue": "3|10001|PENDING\n", "sinfo": "main|down\n", "sacct": "2\n3\n"}

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
        if kind == "configmap":
            return [{"data": self.kept}] if self.kept else []
        if kind == "pod" and "-l" in arguments:
            ended = {"startedAt": "2026-11-26T02:00:00Z", "finishedAt": "2026-11-26T02:00:03Z"}
            names = ("restore-choose", "restore-look", "restore-database", "restore-state", "restore-jail")
            return [
                {"status": {"containerStatuses": [{"name": name, "state": {"terminated": ended}} for name in names]}}
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
        elif arguments[:2] == ("patch", "configmap"):
            changed = {**self.kept, **json.loads(arguments[-1])["data"]}
            self.kept = {key: value for key, value in changed.items() if value is not None}
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
        yield played.lock

    def run_job(_: Any, namespace: str, template: str, *__: Any, **how: Any) -> str:
        played.said.append(f"{template} in {namespace}: {' '.join(sorted(how['only']))}")
        return "\n".join(f"rehearsal: {json.dumps({'part': part, **found})}" for part, found in TOLD.items())

    sizes = {part: {"bytes": 1000} for part in ("state", "database", "jail")}
    monkeypatch.setattr(rehearse, "held", held)
    monkeypatch.setattr(rehearse, "run_job", run_job)
    monkeypatch.setattr(rehearse, "chosen", lambda *_: {"id": "20261126T020000Z", "parts": sizes})
    return played


def rehearsal(cluster: Cluster, sections: dict[str, Any] | None = None, **options: Any) -> Rehearsal:
    found = sections or stacks.existing_full()
    stack = Stack(name="prod", file=Path("x"), sections=found, config=load_config(found))
    return Rehearsal(cluster.kubectl, stack, PlainReport(io.StringIO()), **options)


def test_on_the_local_cluster_its_directories_go_and_those_of_others_never(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(rehearse, "local_directory", lambda: tmp_path)
    place, sections = (
        tmp_path / "volumes" / "slurm-rehearsal",
        {**stacks.dev(), "backup": stacks.existing_full()["backup"]},
    )
    (place / "jail").mkdir(parents=True)
    with pytest.raises(Failure, match="is not of a rehearsal"):
        rehearsal(cluster, sections).run()
    assert (place / "jail").exists()
    (place / ".slurmstack-rehearsal").touch()  # as one that was killed has left it
    assert rehearsal(cluster, sections).run().ok
    assert not place.exists()
