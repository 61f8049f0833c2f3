"""What the watcher writes to the Kubernetes API: events, conditions of a Node, cordons, evictions of worker pods.

Which rights that needs is in `program.py`. No Node is ever deleted, and a pod only through its eviction, which heeds
PodDisruptionBudgets and the pod's own time to end. Events are written by a thread of its own: a slow or absent API
server delays these, and nothing else.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final
from urllib.parse import quote

from images.common.health.report import stamp
from images.common.kubernetes import Kube, KubeError, Object
from images.health.watch.decide import Action, Kind
from images.health.watch.machines import Machines

COMPONENT: Final = "slurmstack-health"
MOST_WAITING: Final = 500
"""Events that wait for the API server; what does not fit is left out."""
_MERGE: Final = "application/strategic-merge-patch+json"
"""Merges the list of conditions by their type, so that the others, which kubelet writes, stay."""
_REPLACE: Final = "application/merge-patch+json"
_EVENT_LENGTH: Final = 1000
"""Kubernetes takes 1024 characters."""

_EVENTS: Final[Mapping[Kind, str]] = {
    Kind.DRAIN: "SlurmNodeDrained",
    Kind.DOWN: "SlurmNodeDown",
    Kind.RESUME: "SlurmNodeResumed",
    Kind.REASON: "SlurmDrainReasonChanged",
    Kind.REQUEUE: "SlurmJobsRequeued",
}


class WritingKube(Kube):
    """The client, with what is written."""

    def set_condition(self, node: str, kind: str, status: str, message: str, *, at: float) -> None:
        """Set one condition of a Node, which had another status until now. Raises KubeError."""
        condition = {"type": kind, "status": status, "reason": "SlurmHealth", "message": message}
        condition |= {"lastHeartbeatTime": stamp(at), "lastTransitionTime": stamp(at)}
        self.send("PATCH", f"/api/v1/nodes/{quote(node)}/status", {"status": {"conditions": [condition]}}, _MERGE)

    def node(self, name: str) -> Object:
        """A Node as it is now. Raises KubeError."""
        return self.get(f"/api/v1/nodes/{quote(name)}")

    def mark_node(self, name: str, *, annotations: Mapping[str, str | None], cordon: bool = False) -> None:
        """Set annotations of a Node, or remove those that are None; and cordon it, if so asked. Raises KubeError."""
        change: dict[str, Any] = {"metadata": {"annotations": dict(annotations)}}
        if cordon:
            change["spec"] = {"unschedulable": True}
        self.send("PATCH", f"/api/v1/nodes/{quote(name)}", change, _REPLACE)

    def evict(self, pod: str, uid: str) -> None:
        """Have a pod of the namespace leave its machine, if it is still this one. Raises KubeError."""
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": self.namespace},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        path = f"/api/v1/namespaces/{self.namespace}/pods/{quote(pod)}/eviction"
        self.send("POST", path, eviction)

    def tell(self, pod: str, uid: str, *, reason: str, message: str, warning: bool, at: float) -> None:
        """Write an event about a pod of the namespace. Raises KubeError."""
        reference = {"apiVersion": "v1", "kind": "Pod", "name": pod, "namespace": self.namespace}
        # One round may have two things to tell of a pod, and another event of the same name is refused.
        name = f"{pod}.{int(at * 1e6):x}.{reason.lower()}"
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": self.namespace},
            "involvedObject": {**reference, "uid": uid} if uid else reference,
            "reason": reason,
            "message": message[:_EVENT_LENGTH],
            "type": "Warning" if warning else "Normal",
            "source": {"component": COMPONENT},
            "reportingComponent": COMPONENT,
            "reportingInstance": COMPONENT,
            "firstTimestamp": stamp(at),
            "lastTimestamp": stamp(at),
            "count": 1,
        }
        self.send("POST", f"/api/v1/namespaces/{self.namespace}/events", event)


@dataclass(kw_only=True)
class Teller:
    """Writes events about worker pods, in a thread of its own."""

    kube: WritingKube
    machines: Machines
    log: Callable[[str], None]
    _waiting: queue.Queue[Callable[[], None]] = field(default_factory=partial(queue.Queue, maxsize=MOST_WAITING))
    _failure: str = ""

    def start(self) -> None:
        """Write in the background, for ever."""

        def run() -> None:
            while True:
                self._write(self._waiting.get())

        threading.Thread(target=run, daemon=True, name="kubernetes-teller").start()

    def write_waiting(self) -> None:
        """Write what waits, here and now."""
        while not self._waiting.empty():
            self._write(self._waiting.get())

    def _write(self, one: Callable[[], None]) -> None:
        """Write one thing; a failure is told once for each message."""
        try:
            one()
            self._failure = ""
        except (KubeError, OSError, ValueError) as error:
            if str(error) != self._failure:
                self._failure = str(error)
                self.log(f"Kubernetes was not told: {error}")

    def acted(self, action: Action, now: float) -> None:
        """Something was done about a node: an event about its pod."""
        name = action.node.name
        machine = self.machines.machine_name(name)
        where = f" (machine {machine})" if machine else ""
        message = f"{action.kind.value} {name}{where}: {action.reason}"
        self.event(name, reason=_EVENTS[action.kind], message=message, warning=action.kind is not Kind.RESUME, now=now)

    def event(self, worker: str, *, reason: str, message: str, warning: bool, now: float) -> None:
        """Write an event about a worker's pod."""
        place = self.machines.pods.values().get(worker)
        uid = place.uid if place is not None else ""
        one = partial(self.kube.tell, worker, uid, reason=reason, message=message, warning=warning, at=now)
        try:
            self._waiting.put_nowait(one)
        except queue.Full:
            self.log("Kubernetes is too slow: a message for it is left out")
