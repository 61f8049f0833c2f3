"""A cluster that has backups, and what commands that make Jobs in it ask of kubectl."""

from __future__ import annotations

import io
import json
import subprocess
from typing import Any, cast

import pytest

from cli.backup.restore import Restoring
from cli.errors import Failure
from cli.kubectl.client import Kubectl
from cli.program.values import reveal
from local.report import PlainReport
from tests import stacks
from tests.recordings import record

REPORT = PlainReport(io.StringIO())


class Cluster:
    """One that has what the program registers for a stack with backups, and runs each Job at once."""

    standby = False

    def __init__(self, **ends: int) -> None:
        """`ends`: exit statuses of containers; 0 where nothing is said."""
        found = record(stacks.existing_full(), stack="prod")
        self.objects = [reveal(item.inputs) for item in found if item.type.startswith("kubernetes:")]
        for number, item in enumerate(self.objects):
            item["metadata"]["uid"] = f"uid-{number}"
        self.ends = ends
        self.said: list[str] = []
        self.jobs: list[dict[str, Any]] = []
        self.running: list[str] = []
        """Names of Jobs of others that have not ended."""
        self.kept = ""
        """What Kubernetes complains about, of a pod that does not start."""
        self.lacks = ""
        """The same, of a Secret that is not there."""

    def items(self, kind: str, *arguments: str) -> list[dict[str, Any]]:  # noqa: PLR0911  one for each kind
        if kind == "pod":
            if "-l" in arguments and arguments[-1].startswith("job-name="):
                return [self._pod()]
            return []
        if kind == "event":
            return [{"message": self.kept, "involvedObject": {"name": self.jobs[-1]["metadata"]["name"]}}]
        if kind == "job" and "-l" in arguments:
            return [{"metadata": {"name": name}} for name in self.running]
        if kind == "job":
            if self.kept or self.lacks:
                return [{"status": {}}]
            bad = any(self.ends.get(name.replace("-", "_")) for name in self._containers())
            status = {"conditions": [{"type": "Failed" if bad else "Complete", "status": "True"}]}
            return [{"metadata": {}, "spec": self.jobs[-1]["spec"], "status": status}]
        kinds = kind.split(",")
        found = [item for item in self.objects if item["kind"].lower() in kinds]
        return [item for item in found if arguments[0] == "-n" or item["metadata"]["name"] == arguments[0]]

    def _containers(self) -> list[str]:
        pod = self.jobs[-1]["spec"]["template"]["spec"]
        return [item["name"] for item in [*pod["initContainers"], *pod["containers"]]]

    def _pod(self) -> dict[str, Any]:
        statuses: list[dict[str, Any]] = []
        if self.kept or self.lacks:
            reason = "CreateContainerConfigError" if self.lacks else "ContainerCreating"
            waiting = {"waiting": {"reason": reason, "message": self.lacks}}
            return {"metadata": {"name": "pod"}, "status": {"containerStatuses": [{"name": "x", "state": waiting}]}}
        for name in self._containers():
            code = self.ends.get(name.replace("-", "_"), 0)
            ended = {"exitCode": code, "message": f"{name}: begins\n{name}: error: the store is away"}
            statuses.append({"name": name, "state": {"terminated": ended}})
            if code:
                break
        return {"metadata": {"name": "pod"}, "status": {"containerStatuses": statuses}}

    def run(self, *arguments: str, stdin: str | None = None, **_: Any) -> subprocess.CompletedProcess[str]:
        if arguments[0] == "create":
            (job,) = json.loads(stdin or "")["items"]
            self.jobs.append(job)
            self.said.append("run " + job["metadata"]["name"].partition("-2")[0])
        elif arguments[0] == "patch":
            self._patch(arguments[1], arguments[2], json.loads(arguments[-1]))
        elif arguments[0] == "annotate":
            self._forget(*arguments[1].split("/"), *(word[:-1] for word in arguments[2:] if word.endswith("-")))
            self.said.append(" ".join(word for word in arguments[:-1] if word not in {"-n", "slurm"}))
        elif arguments[0] == "delete":
            self.said.append(" ".join(word for word in arguments if word not in {"-n", "slurm"}))
        return subprocess.CompletedProcess([], 0, '[{"id": "20261126T020000Z"}]\n', "")

    def _patch(self, kind: str, name: str, change: dict[str, Any]) -> None:
        if kind == "cronjob":
            self.said.append(f"suspend {name} {change['spec']['suspend']}")
            return
        (found,) = [each for each in self.objects if each["kind"].lower() == kind and each["metadata"]["name"] == name]
        found["spec"].update(change.get("spec", {}))
        notes = {**found["metadata"].get("annotations", {}), **change["metadata"]["annotations"]}
        found["metadata"]["annotations"] = {key: value for key, value in notes.items() if value is not None}
        if "spec" in change:
            self.said.append(f"scale {kind}/{name} --replicas={change['spec']['replicas']}")

    def _forget(self, kind: str, name: str, *notes: str) -> None:
        (found,) = [each for each in self.objects if each["kind"].lower() == kind and each["metadata"]["name"] == name]
        for note in notes:
            del found["metadata"]["annotations"][note]

    @property
    def kubectl(self) -> Kubectl:
        return cast("Kubectl", self)


def restored(cluster: Cluster, *parts: str, copy: bool = True) -> list[str]:
    Restoring(cluster.kubectl, "slurm", parts, REPORT).run("20261126T020000Z", copy=copy)
    return cluster.said


def failed(
    cluster: Cluster, *parts: str, copy: bool = True, says: str = "the store is away", what: type[Failure] = Failure
) -> Failure:
    """What a restore has failed with."""
    with pytest.raises(what, match=says) as caught:
        restored(cluster, *parts, copy=copy)
    return caught.value
