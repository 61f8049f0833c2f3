"""Machines that come and go: a stand-in for a cluster autoscaler, and for the kubelets of the machines that it makes.

Real are the API server, the scheduler, and the controllers. No container runs: a pod that the scheduler puts on such a
machine is said to run, and is gone when it is to end. The decisions are those of Cluster Autoscaler: a machine for each
pod that finds no room; a machine goes when its pods may go and have room elsewhere. `StockedMachines` are real ones.
"""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime
from typing import Any, Self

from local import addresses
from local.controlplane import Api
from tests.fakes.kubernetes import Object

PREFIX = "played"
LOOK_SECONDS = 0.3
START_SECONDS = 2.0
"""Until a machine that was asked for is there."""
UNNEEDED_SECONDS = 4.0
"""How long a machine must not have been needed before it goes."""
BEAT_LOOKS = 30
"""Each so many looks a machine gives a sign of life."""
MERGE = "application/merge-patch+json"
SAFE = "cluster-autoscaler.kubernetes.io/safe-to-evict"
DISRUPT = "karpenter.sh/do-not-disrupt"


class PlayedMachines:
    """A group of machines of one label and taint, with room for one pod each; use it as a context manager."""

    def __init__(self, label: str, *, room: dict[str, str]) -> None:
        self.least = 0
        """So many are kept without a pod that wants them."""
        self.problem: BaseException | None = None
        self._label, self._room = label, {**room, "pods": "10"}
        self._api = Api(addresses.from_environment())
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="autoscaler")
        self._made = self._looks = 0
        self._ordered: list[float] = []
        self._unneeded: dict[str, int] = {}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        for machine in self.machines():
            self._remove(machine)

    def machines(self) -> list[str]:
        """Those that are there."""
        return sorted(item["metadata"]["name"] for item in self._list(f"/api/v1/nodes?labelSelector={self._label}"))

    def _list(self, path: str) -> list[Object]:
        found: list[Object] = self._api.get(path)["items"]
        return found

    def _ask(self, method: str, path: str, body: Object | None = None, kind: str = "application/json") -> int:
        status, _ = self._api.request(method, path, None if body is None else json.dumps(body), kind)
        return status

    def _run(self) -> None:
        try:
            while not self._over.wait(LOOK_SECONDS):
                self._look()
        except BaseException as error:
            self.problem = error
            raise

    def _look(self) -> None:
        self._looks += 1
        machines = self.machines()
        pods = [pod for pod in self._list("/api/v1/pods") if self._label in (pod["spec"].get("nodeSelector") or {})]
        on: dict[str, list[Object]] = {name: [] for name in machines}
        for pod in pods:
            on.get(pod["spec"].get("nodeName", ""), []).append(pod)
        self._play(on)
        # One that has just come is for a pod that the scheduler has not looked at again yet.
        new = [name for name, those in on.items() if not those and not self._is_unneeded(name)]
        self._make_machines(sum(map(_finds_no_room, pods)) - len(new), len(machines))
        self._take_a_machine(on)

    def _play(self, on: dict[str, list[Object]]) -> None:
        for name in on if self._looks % BEAT_LOOKS == 0 else ():
            self._ask("PATCH", f"/api/v1/nodes/{name}/status", {"status": _ready(self._room)}, MERGE)
        for pod in (pod for those in on.values() for pod in those):
            self._play_kubelet(pod)

    def _play_kubelet(self, pod: Object) -> None:
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
        if "deletionTimestamp" in pod["metadata"]:
            self._ask("DELETE", path, {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}})
        elif pod["status"].get("phase") == "Pending":
            conditions = [{"type": kind, "status": "True"} for kind in ("PodScheduled", "Initialized", "Ready")]
            self._ask("PATCH", f"{path}/status", {"status": {"phase": "Running", "conditions": conditions}}, MERGE)

    def _make_machines(self, waiting: int, there: int) -> None:
        now = datetime.now(UTC).timestamp()
        for _ in range(max(waiting, self.least - there) - len(self._ordered)):
            self._ordered.append(now)
        for _ in [at for at in self._ordered if now - at >= START_SECONDS]:
            self._ordered.pop(0)
            self._add()

    def _add(self) -> None:
        name = f"{PREFIX}-{self._made}"
        self._made += 1
        metadata = {"name": name, "labels": {self._label: "yes", "kubernetes.io/hostname": name}}
        spec = {"taints": [{"key": self._label, "value": "yes", "effect": "NoSchedule"}]}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec}
        assert self._ask("POST", "/api/v1/nodes", {**node, "status": _ready(self._room)}) == 201

    def _remove(self, machine: str) -> None:
        self._ask("DELETE", f"/api/v1/nodes/{machine}")

    def _take_a_machine(self, on: dict[str, list[Object]]) -> None:
        """One at a time, and the one with pods first: an empty one would go in any case."""
        empty = [name for name, pods in on.items() if not pods]
        may = [name for name, pods in on.items() if pods and empty and not any(map(_is_held, pods))] + empty
        spare = len(on) > self.least
        self._unneeded = {name: self._unneeded.get(name, 0) + 1 for name in may if spare}
        chosen = next(filter(self._is_unneeded, self._unneeded), "")
        if not chosen:
            return
        self._ask("PATCH", f"/api/v1/nodes/{chosen}", {"spec": {"unschedulable": True}}, MERGE)
        self._unneeded = {chosen: self._unneeded[chosen]}  # others are looked at anew when it is gone
        for pod in on[chosen]:
            self._evict(pod)
        if not on[chosen]:
            self._remove(chosen)
            self._unneeded = {}

    def _is_unneeded(self, name: str) -> bool:
        return self._unneeded.get(name, 0) * LOOK_SECONDS >= UNNEEDED_SECONDS

    def _evict(self, pod: Object) -> None:
        """As autoscalers end pods: the API server refuses what a budget forbids, and it is asked again."""
        named = {"name": pod["metadata"]["name"], "namespace": pod["metadata"]["namespace"]}
        path = f"/api/v1/namespaces/{named['namespace']}/pods/{named['name']}/eviction"
        self._ask("POST", path, {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": named})


class StockedMachines(PlayedMachines):
    """Real machines of the local cluster, of which the autoscaler gets those that are in stock, by their label."""

    def __init__(self, label: str, stock: list[str]) -> None:
        super().__init__(label, room={})
        self.stock = stock

    def _play(self, on: dict[str, list[Object]]) -> None:
        """Their kubelets are real."""

    def _add(self) -> None:
        if left := [name for name in self.stock if name not in self.machines()]:
            self._set_label(left[0], "yes")

    def _remove(self, machine: str) -> None:
        self._set_label(machine, None)

    def _take_a_machine(self, on: dict[str, list[Object]]) -> None:
        """Each that has long been without a pod."""
        self._unneeded = {name: self._unneeded.get(name, 0) + 1 for name, pods in on.items() if not pods}
        for name in filter(self._is_unneeded, self._unneeded):
            self._remove(name)

    def _set_label(self, machine: str, value: str | None) -> None:
        changed = {"metadata": {"labels": {self._label: value}}}
        assert self._ask("PATCH", f"/api/v1/nodes/{machine}", changed, MERGE) == 200


def _finds_no_room(pod: Object) -> bool:
    """Whether a machine is to be made for it."""
    said: Any = pod["status"].get("conditions") or ()
    refused = any(one["type"] == "PodScheduled" and one.get("reason") == "Unschedulable" for one in said)
    return refused and "nodeName" not in pod["spec"]


def _is_held(pod: Object) -> bool:
    """Whether it may not be moved."""
    said = pod["metadata"].get("annotations") or {}
    return said.get(SAFE) == "false" or said.get(DISRUPT) == "true"


def _ready(room: dict[str, str]) -> Object:
    """The status of a machine that is well."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    ready = {"type": "Ready", "status": "True", "reason": "Played", "lastHeartbeatTime": now, "lastTransitionTime": now}
    return {"capacity": room, "allocatable": room, "conditions": [ready]}
