"""Tells Kubernetes what the checks found: a condition on each Node below a worker, and events about worker pods.

The condition `SlurmNodeFault` is True where a check of class node or hardware fails, False where none does, and Unknown
where nobody knows. Whoever replaces machines (a cloud's controller, a person) can go by it. A slow or absent API server
delays this, and nothing else: a thread of its own writes.
"""

from __future__ import annotations

import queue
import re
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final

from images.common.follow import Follower
from images.common.kubernetes import WORKER_PODS, Kube, KubeError
from images.health.contract import Status
from images.health.report import one_line
from images.health.watch.decide import KUBERNETES, Action, Kind
from images.health.watch.kube_write import WritingKube
from images.health.watch.machines import CONDITION, Machines, Place, Told, machine_of, place_of
from images.health.watch.view import NodeView

MOST_WAITING: Final = 500
"""Writes that wait for the API server; what does not fit is left out. Conditions are tried again."""
TRY_AGAIN_SECONDS: Final = 30.0
"""Until a condition is written again that Kubernetes does not show."""

_EVENTS: Final[Mapping[Kind, str]] = {
    Kind.DRAIN: "SlurmNodeDrained",
    Kind.DOWN: "SlurmNodeDown",
    Kind.RESUME: "SlurmNodeResumed",
    Kind.REASON: "SlurmDrainReasonChanged",
    Kind.REQUEUE: "SlurmJobsRequeued",
}
_FIGURE: Final = re.compile(r"\d+(?:\.\d+)?")
_MESSAGE_LENGTH: Final = 1000


def follow_machines(kube: Kube, drain_conditions: frozenset[str], log: Callable[[str], None]) -> Machines:
    """Follow the API server in the background."""
    pods = Follower(kube, kube.path("pods"), place_of, log, selector=WORKER_PODS)
    nodes = Follower(kube, "/api/v1/nodes", machine_of, log)
    pods.start()
    nodes.start()
    return Machines(pods=pods, nodes=nodes, drain_conditions=drain_conditions, namespace=kube.namespace)


def conditions(views: Iterable[NodeView], places: Mapping[str, Place], now: float) -> dict[str, Told]:
    """The condition of each machine below a worker, from what the checks found on the workers there."""
    on_machine: dict[str, list[NodeView]] = defaultdict(list)
    for view in views:
        place = places.get(view.name)
        if place is not None and place.node:
            on_machine[place.node].append(view)
    started = {name: place.started for name, place in places.items() if place.started is not None}
    return {machine: _condition(workers, started, now) for machine, workers in on_machine.items()}


def _condition(workers: list[NodeView], started: Mapping[str, float], now: float) -> Told:
    failed, unknown, looked = [], [], False
    gravest = "NodeFault"
    for worker in sorted(workers, key=lambda worker: worker.name):
        for check, finding in sorted(worker.findings.items()):
            # A worker that has moved still has the report of the machine before: its fault is not this one's.
            elsewhere = finding.at < started.get(worker.name, finding.at)
            if check == KUBERNETES or elsewhere or not finding.is_fresh(now):
                continue
            result = finding.result
            looked = looked or result.status is not Status.NOT_CHECKED
            if result.status is Status.FAIL and result.fault != "user":
                failed.append(f"{worker.name}: {check}: {one_line(result.message)}")
                gravest = "HardwareFault" if result.fault == "hardware" else gravest
            elif result.status is Status.NOT_CHECKED:
                unknown.append(f"{worker.name}: {check}: not checked")
    if failed:
        return Told(status="True", reason=gravest, message="; ".join(failed)[:_MESSAGE_LENGTH])
    if not looked:
        return Told(status="Unknown", reason="NotChecked", message="no check has said anything of late")
    message = "; ".join(["no check has found a fault", *unknown])
    return Told(status="False", reason="NoFaultFound", message=message[:_MESSAGE_LENGTH])


def says_the_same(told: Told | None, wanted: Told) -> bool:
    """Whether a condition need not be written: it is there, but for figures that move, or there is nothing to say."""
    if told is None:
        return wanted.status == "Unknown"
    return (told.status, told.reason, _FIGURE.sub("0", told.message)) == (
        wanted.status,
        wanted.reason,
        _FIGURE.sub("0", wanted.message),
    )


class Teller:
    """Writes conditions and events, in a thread of its own."""

    def __init__(
        self, *, kube: WritingKube, machines: Machines, log: Callable[[str], None], writes_conditions: bool = True
    ) -> None:
        self.writes_conditions = writes_conditions
        self._kube = kube
        self._machines = machines
        self._log = log
        self._waiting: queue.Queue[Callable[[], None]] = queue.Queue(maxsize=MOST_WAITING)
        self._asked: dict[str, tuple[Told, float]] = {}
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

    def saw(self, views: Iterable[NodeView], now: float) -> None:
        """The nodes as they are: conditions that are not on the machines yet are written."""
        if not self._machines.synced or not self.writes_conditions:
            return
        machines = self._machines.machines()
        # A machine that no worker is on any more: nobody looks at it.
        left = Told(status="Unknown", reason="NotChecked", message="no worker is on this machine")
        # One that was released keeps what was found: whoever replaces it goes by that.
        wanted = {name: left for name in self._asked if name in machines and not machines[name].released_for}
        wanted |= conditions(views, self._machines.places(), now)
        for name, told in wanted.items():
            machine = machines.get(name)
            asked = self._asked.get(name)
            if machine is None or says_the_same(machine.told, told):
                continue
            if asked is None or asked[0] != told or now - asked[1] >= TRY_AGAIN_SECONDS:
                self._asked[name] = (told, now)
                turned = machine.told is None or machine.told.status != told.status
                self._put(partial(self._kube.set_condition, name, CONDITION, told, at=now, turned=turned))
        self._asked = {
            name: asked
            for name, asked in self._asked.items()
            if name in wanted or (name in machines and machines[name].released_for)
        }

    def _put(self, one: Callable[[], None]) -> None:
        try:
            self._waiting.put_nowait(one)
        except queue.Full:
            self._log("Kubernetes is too slow: a message for it is left out")
