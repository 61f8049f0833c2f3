"""Machines and worker pods in the stand-in for Kubernetes, and the whole watcher over them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from images.common.command import Runner
from images.common.health.contract import Result
from images.common.health.report import Report, encode, stamp
from images.common.health.slurm import Slurm
from images.common.kubernetes import WORKER_PODS, Follower, Kube
from images.health.watch.decide import Limit
from images.health.watch.machines import RELEASED_FOR, Machine, Machines, Place, machine_of, place_of
from images.health.watch.release import Releaser, Rules
from images.health.watch.watcher import Watcher
from tests.fakes.kubernetes import FakeKubernetes
from tests.fakes.kubernetes_http import Question
from tests.fakes.slurmctld import FakeNode, FakeSlurmctld
from tests.unit.images.health.watch.views import NOW, OK, failed, play, policy

Object = dict[str, Any]

NODES = "/api/v1/nodes"
PODS = "/api/v1/namespaces/ns/pods"


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

    def add_node(self, name: str) -> None:
        self.remove(NODES, name)
        self.put(NODES, name, spec={}, status={"conditions": [{"type": "Ready", "status": "True"}]})

    def add_pod(self, name: str, node: str, started: float = NOW - 10_000) -> None:
        """A new one, whatever was there by this name. `started`: when kubelet took it."""
        self.remove(PODS, name)
        status = {"startTime": stamp(started)}
        self.put(PODS, name, metadata={"labels": {WORKER_PODS: "true"}}, spec={"nodeName": node}, status=status)

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
        if question.subresource == "status":
            (condition,) = question.body["status"]["conditions"]
            self.changes.append(f"{condition['type']}={condition['status']} {question.name}")
        elif question.method == "PATCH":
            self.changes.append(f"{'cordon' if self.is_cordoned(question.name) else 'uncordon'} {question.name}")
        return answered

    def _replace(self, name: str, **content: Any) -> None:
        kept = {key: value for key, value in self.nodes[name].items() if key in {"spec", "status"}}
        self.put(NODES, name, **kept | content)


BROKEN = failed("GPU 3: Xid 79", "hardware")
CHECKS = ("gpu-xid", "gpu-memory", "gpu-links", "gpu-presence", "gpu-thermal")


def _check_of(name: str) -> str:
    """Each machine is broken in another way than the next ones: what many have at once drains nothing."""
    return CHECKS[int(name.rpartition("-")[2]) % len(CHECKS)]


SUSPECTED = "HardwareIssuesSuspected"


class Followed(Follower[Any]):
    """A follower whose copy the test sets, or gives as it is then."""

    def __init__(self, given: Mapping[str, Any] | Callable[[], Mapping[str, Any]]) -> None:
        self.synced = True
        self.copy: dict[str, Any] = {} if callable(given) else dict(given)
        self.read = given if callable(given) else lambda: self.copy

    def values(self) -> dict[str, Any]:
        return dict(self.read())


class Fleet:
    """Machines m-0, m-1, ... with a worker w-0, w-1, ... each, and the whole watcher."""

    def __init__(self, token: Path, runner: Runner, count: int) -> None:
        """`runner`: takes the commands of Slurm."""
        self.names = [f"w-{number}" for number in range(count)]
        self.kubernetes = WatchedMachines(count)
        self.runner = runner
        self.log: list[str] = []
        port = self.kubernetes.port
        self.kube = Kube(host="127.0.0.1", port=port, namespace="ns", tls=False, service_account=token)
        self.results: dict[str, dict[str, Result]] = {name: {"gpu-xid": OK} for name in self.names}
        self.start()

    def wall(self) -> float:
        """The clock."""
        return time.time()

    def start(self, *, max_unavailable: str = "1", **rules: Any) -> None:
        """Start a watcher, in the place of the last one."""
        slurm = Slurm(runner=self.runner)
        machines = Machines(
            pods=Followed(self.kubernetes.places),
            nodes=Followed(self.kubernetes.machines),
            drain_conditions=frozenset({"Maintenance", SUSPECTED}),
            probe=lambda *_: True,
        )
        self.releaser = Releaser(
            kube=self.kube,
            slurm=slurm,
            copies=machines,
            rules=Rules(max_unavailable=Limit.parse(max_unavailable), **rules),
            log=self.log.append,
            wall=self.wall,
        )
        self.watcher = Watcher(
            slurm=slurm,
            policy=policy(requeue_after=60, frees_broken=True),
            log=self.log.append,
            machines=machines,
            releaser=self.releaser,
            wall=self.wall,
        )

    def break_gpu(self, *names: str) -> None:
        for name in names or ("w-0",):
            self.results[name] = {_check_of(name): BROKEN}

    def heal(self, name: str = "w-0") -> None:
        self.results[name] = {_check_of(name): OK}

    def released(self) -> list[str]:
        return [name for name in self.kubernetes.nodes if RELEASED_FOR in self.kubernetes.annotations(name)]


class Cluster(Fleet):
    """Four of them, with a clock and a Slurm of our own."""

    def __init__(self, token: Path) -> None:
        self.time = NOW
        nodes = {f"w-{number}": FakeNode(states={"IDLE"}) for number in range(4)}
        self.slurmctld = FakeSlurmctld(self.wall, nodes)
        self.nodes = self.slurmctld.nodes
        super().__init__(token, self.slurmctld.runner, len(nodes))

    def wall(self) -> float:
        return self.time

    def round(self, later: float = 2.0) -> None:
        self.time += later
        for name, results in self.results.items():
            if name in self.nodes:
                self.nodes[name].comment = encode(Report(at=int(self.time), results=results))
        self.watcher.round()

    def play(self, story: str) -> None:
        """What happens to the first machine; see `play`."""
        happens: dict[str, Callable[[], object]] = {
            "break": self.break_gpu,
            "heal": self.heal,
            "cordon": lambda: self.kubernetes.cordon("m-0"),
            "uncordon": lambda: self.kubernetes.cordon("m-0", cordoned=False),
        }
        play(story, lambda later: self.round(2.0 if later is None else later), happens)

    def drained(self) -> list[str]:
        return [name for name, node in self.nodes.items() if "DRAIN" in node.states]
