"""Tells Kubernetes what was done about nodes: events about worker pods.

A slow or absent API server delays this, and nothing else: a thread of its own writes.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from images.common.kubernetes import WORKER_PODS, Follower, Kube, KubeError
from images.health.watch.decide import Action, Kind
from images.health.watch.kube_write import WritingKube
from images.health.watch.machines import Machines, machine_of, place_of

MOST_WAITING: Final = 500
"""Writes that wait for the API server; what does not fit is left out."""

_EVENTS: Final[Mapping[Kind, str]] = {
    Kind.DRAIN: "SlurmNodeDrained",
    Kind.DOWN: "SlurmNodeDown",
    Kind.RESUME: "SlurmNodeResumed",
    Kind.REASON: "SlurmDrainReasonChanged",
    Kind.REQUEUE: "SlurmJobsRequeued",
}


def follow_machines(kube: Kube, drain_conditions: frozenset[str], log: Callable[[str], None]) -> Machines:
    """Follow the API server in the background."""
    pods = Follower(kube, kube.path("pods"), place_of, log, selector=WORKER_PODS)
    nodes = Follower(kube, "/api/v1/nodes", machine_of, log)
    pods.start()
    nodes.start()
    return Machines(pods=pods, nodes=nodes, drain_conditions=drain_conditions)


class Teller:
    """Writes events, in a thread of its own."""

    def __init__(self, *, kube: WritingKube, machines: Machines, log: Callable[[str], None]) -> None:
        self._kube = kube
        self._machines = machines
        self._log = log
        self._waiting: queue.Queue[Callable[[], None]] = queue.Queue(maxsize=MOST_WAITING)
        self._failure = ""

    def start(self) -> None:
        """Write in the background."""
        threading.Thread(target=self.run, daemon=True, name="kubernetes-teller").start()

    def run(self) -> None:
        """Write for ever."""
        while True:
            self.write(self._waiting.get())

    def write_waiting(self) -> None:
        """Write what waits, here and now."""
        while True:
            try:
                one = self._waiting.get_nowait()
            except queue.Empty:
                return
            self.write(one)

    def write(self, one: Callable[[], None]) -> None:
        """Write one thing; a failure is told once for each message."""
        try:
            one()
            self._failure = ""
        except (KubeError, OSError, ValueError) as error:
            if str(error) != self._failure:
                self._failure = str(error)
                self._log(f"Kubernetes was not told: {error}")

    def acted(self, action: Action, now: float) -> None:
        """Something was done about a node: an event about its pod."""
        name = action.node.name
        place = self._machines.places().get(name)
        where = f" (machine {place.node})" if place is not None and place.node else ""
        self.event(
            name,
            reason=_EVENTS[action.kind],
            message=f"{action.kind.value} {name}{where}: {action.reason}",
            warning=action.kind is not Kind.RESUME,
            now=now,
        )

    def event(self, worker: str, *, reason: str, message: str, warning: bool, now: float) -> None:
        """Write an event about a worker's pod."""
        place = self._machines.pods().get(worker)
        uid = place.uid if place is not None else ""
        self._put(partial(self._kube.tell, worker, uid, reason=reason, message=message, warning=warning, at=now))

    def _put(self, one: Callable[[], None]) -> None:
        try:
            self._waiting.put_nowait(one)
        except queue.Full:
            self._log("Kubernetes is too slow: a message for it is left out")
