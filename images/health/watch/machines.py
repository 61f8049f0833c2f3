"""The machines below the workers, as Kubernetes sees them, as findings of a check like any other.

A cordoned machine, one with a condition that the site has named (maintenance), and one that is not ready is to be
drained in Slurm; so is one that a watcher has released for replacement (`release.py`). A machine counts as lost, which
ends and requeues its jobs, only on two pieces of evidence: Kubernetes has not heard of it, and its slurmd does not take
a connection, several times in a row. While the API server does not answer, all is `not checked`.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Final

from images.common.health.contract import fail, not_checked, ok
from images.common.health.report import Finding
from images.common.health.slurm import Record
from images.common.kubernetes import Follower, Kube, Object, time_of

RELEASED_FOR: Final = "slurmstack/released-for"
"""Annotation of a Node that a watcher has cordoned: `health/gpu-presence`, the check that wants it replaced. It is not
released again while that is there."""
DEAD: Final = frozenset({"node.kubernetes.io/out-of-service", "node.cloudprovider.kubernetes.io/shutdown"})
"""Taints of a machine that is off: a person's, and a cloud's controller's."""
OWN_WORDS: Final = "slurmstack: "
"""So begins the message of each condition that the watcher sets to have a machine replaced."""

TRIES: Final = 3
"""Connections that fail in a row before slurmd counts as silent: for 4 s a round waits, after Kubernetes has lost the
machine, which takes Kubernetes 40 to 50 s by itself."""
CONNECT_SECONDS: Final = 1.0
PAUSE_SECONDS: Final = 0.5
"""Between two tries."""
_AT_ONCE: Final = 32
"""Machines that are tried at a time."""


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
    dead: str = ""
    """The taint by which somebody vouches that it does not run."""

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
    """Of the pod."""
    started: float | None = None
    """When kubelet took the pod, in seconds since 1970: what was found before was found on another machine."""


def machine_of(node: Object) -> Machine:
    """What matters of a Node object."""
    conditions = {item["type"]: item for item in node.get("status", {}).get("conditions", [])}
    ready = conditions.pop("Ready", {})
    true = {kind: item for kind, item in conditions.items() if item["status"] == "True"}
    taints = [taint["key"] for taint in node.get("spec", {}).get("taints") or ()]
    since = {kind: time_of(item.get("lastTransitionTime")) for kind, item in true.items()}
    return Machine(
        ready=ready.get("status", "Unknown"),
        why=ready.get("message", ""),
        cordoned=node.get("spec", {}).get("unschedulable", False),
        conditions={kind: item.get("message") or item.get("reason", "") for kind, item in true.items()},
        since={kind: at for kind, at in since.items() if at},
        released_for=node["metadata"].get("annotations", {}).get(RELEASED_FOR, ""),
        dead=next((key for key in taints if key in DEAD), ""),
    )


def place_of(pod: Object) -> Place:
    """What matters of a Pod object."""
    return Place(
        node=pod["spec"].get("nodeName", ""),
        uid=pod["metadata"]["uid"],
        started=time_of(pod.get("status", {}).get("startTime")) or None,
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
    return Finding(result=ok(), at=now)


def _fail(message: str, now: float) -> Finding:
    return Finding(result=fail("node", message.rstrip(": ")), at=now)


def answers(address: str, port: int) -> bool:
    """Whether slurmd takes a connection in one of some tries."""
    for _ in range(TRIES):
        with contextlib.suppress(OSError), socket.create_connection((address, port), timeout=CONNECT_SECONDS):
            return True
        time.sleep(PAUSE_SECONDS)
    return False


@dataclass(kw_only=True)
class Machines:
    """Findings about the machines, by name of the Slurm node."""

    pods: Follower[Place]
    """Where each pod of the namespace is."""
    nodes: Follower[Machine]
    drain_conditions: frozenset[str] = frozenset()
    probe: Callable[[str, int], bool] = answers
    _places: dict[str, str] = field(default_factory=dict)
    """Where each Slurm node is, or was before it lost its pod."""

    @property
    def synced(self) -> bool:
        """Whether the API server has told all, and still answers."""
        return self.pods.synced and self.nodes.synced

    def findings(self, records: Sequence[Record], now: float) -> dict[str, Finding]:
        """Look at the machine of each node."""
        if not self.synced:
            unknown = Finding(result=not_checked("the Kubernetes API does not answer"), at=now)
            return {record.name: unknown for record in records}
        self._places |= {name: place.node for name, place in self.pods.values().items() if place.node}
        names = {record.name for record in records}
        self._places = {name: place for name, place in self._places.items() if name in names}
        machines = self.nodes.values()
        silent = self._silent(records, machines)
        found = {}
        for record in records:
            name = self._places.get(record.name)
            if name is None:
                found[record.name] = Finding(result=not_checked("its pod is not known"), at=now)
            else:
                is_silent = record.name in silent
                found[record.name] = judge(
                    name, machines.get(name), now, silent=is_silent, drain_conditions=self.drain_conditions
                )
        return found

    def _silent(self, records: Sequence[Record], machines: Mapping[str, Machine]) -> set[str]:
        """Nodes whose slurmd does not answer, of those that Kubernetes does not hear of and Slurm uses."""

        def is_asked(record: Record) -> bool:
            machine = machines.get(self._places.get(record.name, ""))
            is_used = record.name in self._places and not (record.is_down or record.is_asleep)
            return is_used and (machine is None or not machine.is_heard)

        asked = [record for record in records if is_asked(record)]
        if not asked:
            return set()
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            heard = pool.map(lambda record: self.probe(record.address, record.port), asked)
            return {record.name for record, answered in zip(asked, heard, strict=True) if not answered}


def follow_machines(kube: Kube, drain_conditions: frozenset[str], log: Callable[[str], None]) -> Machines:
    """Follow the API server in the background."""
    pods = Follower(kube, kube.path("pods"), place_of, log)
    nodes = Follower(kube, "/api/v1/nodes", machine_of, log)
    pods.start()
    nodes.start()
    return Machines(pods=pods, nodes=nodes, drain_conditions=drain_conditions)
