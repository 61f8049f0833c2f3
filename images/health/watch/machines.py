"""The machines below the workers, as Kubernetes sees them, as findings of a check like any other.

A cordoned machine, one with a condition that the site has named (maintenance), and one that is not ready is to be
drained in Slurm; so is one that a watcher has released for replacement (`release.py`). A machine counts as lost, which
ends and requeues its jobs, only on two pieces of evidence: Kubernetes has not heard of it, and its slurmd does not take
a connection, several times in a row. While the API server does not answer, all is `not checked`.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Final

from images.common.health.report import Finding
from images.common.health.slurm import Record
from images.common.kubernetes import WORKER_PODS, Follower, Kube, Object
from images.health.verdict import fail, not_checked, ok

RELEASED_FOR: Final = "slurmstack/released-for"
"""Annotation of a Node that a watcher has cordoned: `health/gpu-xid`, the check that wants it replaced. It is not
released again while that is there."""
OWN_WORDS: Final = "slurmstack: "
"""So begins the message of each condition that the watcher sets to have a machine replaced."""

TRIES: Final = 3
"""Connections that fail in a row before slurmd counts as silent: 4 s after Kubernetes has lost the machine, which takes
Kubernetes 40 to 50 s by itself."""
CONNECT_SECONDS: Final = 1.0
PAUSE_SECONDS: Final = 0.5
"""Between two tries."""
MISSING_ROUNDS: Final = 3
"""Pods and Nodes are followed apart: a pod may be heard of before the new machine that it is on."""
_AT_ONCE: Final = 32
"""Machines that are tried at a time; the others wait for their turn."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A Node of Kubernetes."""

    ready: str
    """Status of its condition Ready: True, False, or Unknown where kubelet is silent."""
    why: str = ""
    """Message of that condition."""
    cordoned: bool = False
    conditions: Mapping[str, str]
    """Messages of conditions that are true, by type."""
    since: Mapping[str, float] = field(default_factory=dict)
    """Since when these are true, in seconds since 1970, where that is known."""
    released_for: str = ""
    """Value of the annotation."""

    @property
    def is_released(self) -> bool:
        """Whether a watcher has cordoned it, and nobody has uncordoned or replaced the machine since."""
        return bool(self.released_for) and self.cordoned

    @property
    def is_heard(self) -> bool:
        """Whether kubelet tells Kubernetes how the machine is."""
        return self.ready in {"True", "False"}


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a worker's pod is."""

    node: str
    """Kubernetes node; empty while it has none."""
    uid: str = ""
    started: float | None = None
    """When kubelet took the pod, in seconds since 1970: what was found before was found on another machine."""
    leaving: bool = False
    """It is being deleted."""


def machine_of(node: Object) -> Machine:
    """What matters of a Node object."""
    conditions = {item["type"]: item for item in node.get("status", {}).get("conditions", [])}
    ready = conditions.pop("Ready", {})
    true = {kind: item for kind, item in conditions.items() if item["status"] == "True"}
    since = {kind: seconds_of(item.get("lastTransitionTime")) for kind, item in true.items()}
    return Machine(
        ready=ready.get("status", "Unknown"),
        why=ready.get("message", ""),
        cordoned=node.get("spec", {}).get("unschedulable", False),
        conditions={kind: item.get("message") or item.get("reason", "") for kind, item in true.items()},
        since={kind: at for kind, at in since.items() if at is not None},
        released_for=node["metadata"].get("annotations", {}).get(RELEASED_FOR, ""),
    )


def seconds_of(text: str | None) -> float | None:
    """Seconds since 1970 of a time as Kubernetes writes it; None where there is none."""
    return datetime.fromisoformat(text).timestamp() if text else None


def place_of(pod: Object) -> Place:
    """What matters of a Pod object."""
    return Place(
        node=pod["spec"].get("nodeName", ""),
        uid=pod["metadata"]["uid"],
        started=seconds_of(pod.get("status", {}).get("startTime")),
        leaving="deletionTimestamp" in pod["metadata"],
    )


def judge(name: str, machine: Machine | None, now: float, *, silent: bool, drain_conditions: frozenset[str]) -> Finding:
    """How the machine of this name is; None: Kubernetes has no such Node any more."""
    unheard = machine is None or not machine.is_heard
    if unheard and silent:
        what = "is gone from Kubernetes" if machine is None else "is not heard of by Kubernetes"
        return replace(_fail(f"machine {name} {what}, and slurmd does not answer", now), lost=True)
    if machine is None:
        return _fail(f"machine {name} is gone from Kubernetes", now)
    if machine.cordoned:  # by a person, or within the limit of drains, as nobody but a watcher has said so
        what = f"released for {machine.released_for}" if machine.is_released else "cordoned"
        since = 0.0 if machine.is_released else None
        return replace(_fail(f"machine {name} is {what}", now), declared=True, unwanted_since=since)
    for kind in sorted(drain_conditions & machine.conditions.keys()):
        if machine.conditions[kind].startswith(OWN_WORDS):
            continue  # written by a watcher for what its checks have found, and these speak for themselves
        message = f"machine {name} has the condition {kind}: {machine.conditions[kind]}"
        # Of unknown age: as old as the drain for it.
        return replace(_fail(message, now), declared=True, unwanted_since=machine.since.get(kind, 0.0))
    if machine.ready != "True":
        return _fail(f"machine {name} is not ready: {machine.why}", now)
    return Finding(result=ok(), at=now, arrived=now)


def _fail(message: str, now: float) -> Finding:
    return Finding(result=fail("node", message.rstrip(": ")), at=now, arrived=now)


def takes_connection(address: str, port: int) -> bool:
    """Whether slurmd listens."""
    try:
        with socket.create_connection((address, port), timeout=CONNECT_SECONDS):
            return True
    except (OSError, ValueError):  # ValueError: what is no name of a host
        return False


def answers(address: str, port: int) -> bool:
    """Whether slurmd takes a connection in one of some tries."""
    for attempt in range(TRIES):
        if attempt:
            time.sleep(PAUSE_SECONDS)
        if takes_connection(address, port):
            return True
    return False


@dataclass(kw_only=True)
class _Worker:
    """A Slurm node: where it is, or was before it lost its pod, and what is known of that machine."""

    place: Place
    missing: int = 0
    """Rounds in a row in which Kubernetes had no such Node."""
    silent: bool = False
    """slurmd did not answer the last tries."""
    trying: Future[bool] | None = None


@dataclass(kw_only=True)
class Machines:
    """Findings about the machines, by name of the Slurm node."""

    pods: Follower[Place]
    nodes: Follower[Machine]
    drain_conditions: frozenset[str] = frozenset()
    probe: Callable[[str, int], bool] = answers
    """May take seconds: it runs in threads of `pool`, and no round waits for it."""
    pool: Executor = field(
        default_factory=partial(ThreadPoolExecutor, max_workers=_AT_ONCE, thread_name_prefix="probe")
    )
    _workers: dict[str, _Worker] = field(default_factory=dict)

    @property
    def synced(self) -> bool:
        """Whether the API server has told all, and still answers."""
        return self.pods.synced and self.nodes.synced

    def machine_name(self, name: str) -> str:
        """Kubernetes' name of the machine that a Slurm node is on, or was; empty if nobody knows."""
        return self._workers[name].place.node if name in self._workers else ""

    def findings(self, records: Sequence[Record], now: float) -> dict[str, Finding]:
        """Look at the machine of each node."""
        if not self.synced:
            self._workers = {name: _Worker(place=worker.place) for name, worker in self._workers.items()}
            unknown = Finding(result=not_checked("the Kubernetes API does not answer"), at=now)
            return {record.name: unknown for record in records}
        self._follow_pods(records)
        machines = self.nodes.values()
        self._listen(records, machines)
        return {record.name: self._finding(self._workers.get(record.name), machines, now) for record in records}

    def _follow_pods(self, records: Sequence[Record]) -> None:
        """A node without a pod, or whose pod has no machine yet, keeps the place that it had."""
        pods, before, self._workers = self.pods.values(), self._workers, {}
        for name in (record.name for record in records):
            place, worker = pods.get(name), before.get(name)
            if place is not None and place.node:
                if worker is None or worker.place.node != place.node:
                    worker = _Worker(place=place)  # what is known of the machine that it was on counts no more
                worker.place = place
            if worker is not None:
                self._workers[name] = worker

    def _listen(self, records: Sequence[Record], machines: Mapping[str, Machine]) -> None:
        """Try slurmd where Kubernetes does not hear of the machine, again and again, and take what that brought."""
        idle = []
        for record in records:
            worker = self._workers.get(record.name)
            if worker is None:
                continue
            machine = machines.get(worker.place.node)
            worker.missing = worker.missing + 1 if machine is None else 0
            if machine is not None and machine.is_heard:
                worker.silent, worker.trying = False, None
                continue
            if worker.trying is not None and worker.trying.done():
                worker.silent, worker.trying = not worker.trying.result(), None
            if worker.trying is None:
                idle.append((worker, record))
        room = _AT_ONCE - sum(worker.trying is not None for worker in self._workers.values())
        # Those that are known to be silent are tried last: what matters is who else is.
        for worker, record in sorted(idle, key=lambda one: (one[0].silent, one[1].name))[: max(room, 0)]:
            worker.trying = self.pool.submit(self.probe, record.address, record.port)

    def _finding(self, worker: _Worker | None, machines: Mapping[str, Machine], now: float) -> Finding:
        if worker is None:
            return Finding(result=not_checked("its pod is not known"), at=now)
        name = worker.place.node
        if 0 < worker.missing < MISSING_ROUNDS:
            return Finding(result=not_checked(f"machine {name} is not known"), at=now)
        return judge(name, machines.get(name), now, silent=worker.silent, drain_conditions=self.drain_conditions)


def follow_machines(kube: Kube, drain_conditions: frozenset[str], log: Callable[[str], None]) -> Machines:
    """Follow the API server in the background."""
    pods = Follower(kube, kube.path("pods"), place_of, log, selector=WORKER_PODS)
    nodes = Follower(kube, "/api/v1/nodes", machine_of, log)
    pods.start()
    nodes.start()
    return Machines(pods=pods, nodes=nodes, drain_conditions=drain_conditions)
