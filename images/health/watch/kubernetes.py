"""Tells Kubernetes what was done about nodes: events about worker pods, written by a thread of its own.

A slow or absent API server delays these, and nothing else.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from images.common.health.report import stamp
from images.common.kubernetes import Kube, KubeError
from images.health.watch.decide import Action, Kind
from images.health.watch.machines import Machines

COMPONENT: Final = "slurmstack-health"
MOST_WAITING: Final = 500
"""Events that wait for the API server; what does not fit is left out."""
_EVENT_LENGTH: Final = 1000
"""Kubernetes takes 1024 characters."""

_EVENTS: Final[Mapping[Kind, str]] = {
    Kind.DRAIN: "SlurmNodeDrained",
    Kind.DOWN: "SlurmNodeDown",
    Kind.RESUME: "SlurmNodeResumed",
    Kind.REASON: "SlurmDrainReasonChanged",
    Kind.REQUEUE: "SlurmJobsRequeued",
}


@dataclass(kw_only=True)
class Teller:
    """Writes events about worker pods, in a thread of its own."""

    kube: Kube
    machines: Machines
    log: Callable[[str], None]
    _waiting: queue.Queue[dict[str, Any]] = field(default_factory=partial(queue.Queue, maxsize=MOST_WAITING))
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

    def _write(self, event: dict[str, Any]) -> None:
        """A failure is told once for each message."""
        try:
            self.kube.send("POST", self.kube.path("events"), event)
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
        pod = {"apiVersion": "v1", "kind": "Pod", "name": worker, "namespace": self.kube.namespace}
        if (place := self.machines.pods.values().get(worker)) is not None:
            pod["uid"] = place.uid
        # One round may have two things to tell of a pod, and another event of the same name is refused.
        name = f"{worker}.{int(now * 1e6):x}.{reason.lower()}"
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": self.kube.namespace},
            "involvedObject": pod,
            "reason": reason,
            "message": message[:_EVENT_LENGTH],
            "type": "Warning" if warning else "Normal",
            "source": {"component": COMPONENT},
            "reportingComponent": COMPONENT,
            "reportingInstance": COMPONENT,
            "firstTimestamp": stamp(now),
            "lastTimestamp": stamp(now),
            "count": 1,
        }
        try:
            self._waiting.put_nowait(event)
        except queue.Full:
            self.log("Kubernetes is too slow: a message for it is left out")
