"""A cluster for the tests of `logs` and `support-bundle`: kubectl with pods that have written, and objects."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cli.errors import Failure
from tests.fakes.kubectl import PlayedKubectl, listed

FORBIDDEN = 'Error from server (Forbidden): {what} is forbidden: User "carol" cannot get it'

Answer = subprocess.CompletedProcess[str]


def pod(name: str, component: str, *containers: str, pool: str = "", restarts: int = 0) -> dict[str, Any]:
    """A pod with munged before its containers, as Kubernetes has it."""
    states = [{"name": each, "ready": True, "restartCount": restarts} for each in containers]
    return {
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {"app.kubernetes.io/component": component, **({"slurmstack/pool": pool} if pool else {})},
            "ownerReferences": [{"kind": "StatefulSet", "name": name.rpartition("-")[0]}],
        },
        "spec": {
            "nodeName": "m1",
            "initContainers": [{"name": "munged"}],
            "containers": [{"name": each} for each in containers],
        },
        "status": {
            "phase": "Running",
            "initContainerStatuses": [{"name": "munged", "ready": True, "restartCount": 0}],
            "containerStatuses": states,
        },
    }


def worker(name: str) -> dict[str, Any]:
    return pod(name, "worker", "slurmd", pool=name.rpartition("-")[0])


CONTROLLER = pod("controller-0", "controller", "slurmctld", "config-agent")


@dataclass(frozen=True, kw_only=True)
class FakeCluster(PlayedKubectl):
    """kubectl for somebody with rights in the namespace, but for what is refused."""

    pods: Sequence[dict[str, Any]] = (CONTROLLER,)
    logs: Mapping[str, str] = field(default_factory=dict)
    """By `POD/CONTAINER`, and `POD/CONTAINER previous`."""
    objects: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Further ones, by what `kubectl get` calls their kind."""
    slurm: Mapping[str, str] = field(default_factory=dict)
    """What a command prints in the controller, by its first word; others are unknown there."""
    refused: frozenset[str] = frozenset()
    """Kinds and containers that may not be read."""
    asked: list[tuple[str, ...]] = field(default_factory=list)

    def run(self, *arguments: str, stdin: str | None = None, check: bool = True, **_: float) -> Answer:
        del stdin
        self.asked.append(arguments)
        output, error = self._answer(arguments)
        if error and check:
            raise Failure(error)
        return subprocess.CompletedProcess(arguments, 1 if error else 0, output, error)

    def _answer(self, arguments: tuple[str, ...]) -> tuple[str, str]:
        match arguments:
            case ("logs", "-n", "slurm", pod_, "-c", container, "--timestamps", *options):
                place = f"{pod_}/{container}" + (" previous" if "--previous" in options else "")
                if place in self.refused or "logs" in self.refused:
                    return "", FORBIDDEN.format(what=f"pods/log {place}")
                return self.logs.get(place, ""), ""
            case ("exec", "-n", "slurm", "controller-0", "-c", "slurmctld", "--", *command):
                word = next((word for word in ("sacct", *self.slurm) if word in command), "")
                return (self.slurm[word], "") if word in self.slurm else ("", f"{command[0]}: cannot be asked")
            case ("get", "--ignore-not-found", kinds, *_) | ("get", kinds, *_):
                return self._objects(kinds)
            case ("exec", *_):
                return "", "there is no such pod"
            case ("version", "-o", "json"):
                return '{"serverVersion": {"gitVersion": "v1.34.0"}}', ""
        raise AssertionError(f"unexpected kubectl {arguments}")

    def _objects(self, kind: str) -> tuple[str, str]:
        if kind in self.refused:
            return "", FORBIDDEN.format(what=kind)
        found = {
            "pod": self.pods,
            "pods": self.pods,
            "namespace": [{"kind": "Namespace", "metadata": {"name": "slurm"}}],
        }
        return json.dumps(listed(*self.objects.get(kind, found.get(kind, ())))), ""
