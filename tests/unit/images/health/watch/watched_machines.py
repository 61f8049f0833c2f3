"""Machines and worker pods in the stand-in for Kubernetes, and what was done to them in words."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from images.common.kubernetes import WORKER_PODS
from images.health.watch.machines import Machine, Place, machine_of, place_of
from tests.fakes.kubernetes import FakeKubernetes
from tests.fakes.kubernetes_http import Question
from tests.unit.images.health.watch.views import NOW

Object = dict[str, Any]

NODES = "/api/v1/nodes"
PODS = "/api/v1/namespaces/ns/pods"
EVENTS = "/api/v1/namespaces/ns/events"


def stamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class WatchedMachines(FakeKubernetes):
    """Machines m-0, m-1, …, each with a worker w-0, w-1, …"""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.nodes: dict[str, Object] = self.collections.setdefault(NODES, {})
        self.pods: dict[str, Object] = self.collections.setdefault(PODS, {})
        self.changes: list[str] = []
        """What requests have changed."""
        for number in range(count):
            self.add_node(f"m-{number}")
            self.add_pod(f"w-{number}", f"m-{number}")

    @property
    def asked(self) -> list[str]:
        return [f"{question.method} {question.path}" for question in self.questions]

    @property
    def events(self) -> list[Object]:
        return list(self.collections.get(EVENTS, {}).values())

    def add_node(self, name: str) -> None:
        self.remove(NODES, name)
        self.put(NODES, name, spec={}, status={"conditions": [{"type": "Ready", "status": "True"}]})

    def add_pod(self, name: str, node: str, *, started: float = NOW - 9000) -> None:
        """A new one, whatever was there by this name."""
        self.remove(PODS, name)
        metadata = {"uid": f"uid of {name} on {node}", "labels": {WORKER_PODS: "true"}}
        self.put(PODS, name, metadata=metadata, spec={"nodeName": node}, status={"startTime": stamp(started)})

    def cordon(self, name: str, *, cordoned: bool = True) -> None:
        """As a person does it."""
        spec = {key: value for key, value in self.nodes[name]["spec"].items() if key != "unschedulable"}
        self._replace(name, spec={**spec, **({"unschedulable": True} if cordoned else {})})

    def is_cordoned(self, name: str) -> bool:
        return bool(self.nodes[name]["spec"].get("unschedulable"))

    def annotations(self, name: str) -> dict[str, str]:
        found: dict[str, str] = self.nodes[name]["metadata"].get("annotations", {})
        return found

    def condition(self, name: str, kind: str) -> str | None:
        listed = self.nodes[name]["status"]["conditions"]
        return next((item["status"] for item in listed if item["type"] == kind), None)

    def machines(self) -> dict[str, Machine]:
        return {name: machine_of(node) for name, node in self.nodes.items()}

    def places(self) -> dict[str, Place]:
        return {name: place_of(pod) for name, pod in self.pods.items()}

    def answer(self, question: Question) -> tuple[int, Object]:
        answered = super().answer(question)
        if question.subresource == "eviction":
            self.changes.append(f"evict {question.name}")
        elif question.subresource == "status":
            (condition,) = question.body["status"]["conditions"]
            self.changes.append(f"{condition['type']}={condition['status']} {question.name}")
        elif question.method == "PATCH":
            self.changes.append(f"{'cordon' if self.is_cordoned(question.name) else 'uncordon'} {question.name}")
        return answered

    def _replace(self, name: str, **content: Any) -> None:
        kept = {key: value for key, value in self.nodes[name].items() if key in {"spec", "status"}}
        self.put(NODES, name, **kept | content)
