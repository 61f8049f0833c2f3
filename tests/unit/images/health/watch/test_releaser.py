"""Machines are released, as faults, people and limits want it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from images.common.health.contract import Result
from images.common.health.report import Report, encode, stamp
from images.common.health.slurm import Slurm
from images.common.kubernetes import WORKER_PODS, Kube
from images.common.slurm_node import is_ours
from images.common.slurm_records import NodeRecord
from images.health.watch.decide import Limit
from images.health.watch.machines import RELEASED_FOR, Machine, Machines, Place, machine_of, place_of
from images.health.watch.release import Releaser, Rules
from images.health.watch.watcher import Watcher
from tests.fakes.kubernetes import FakeKubernetes
from tests.fakes.kubernetes_http import Question
from tests.fakes.slurmctld import FakeNode, FakeSlurmctld
from tests.unit.images.health.watch.views import NOW, OK, Followed, failed, play, policy

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
            ready, labels = {"conditions": [{"type": "Ready", "status": "True"}]}, {WORKER_PODS: "true"}
            self.put(NODES, f"m-{number}", spec={}, status=ready)
            status, spec = {"startTime": stamp(NOW - 10_000)}, {"nodeName": f"m-{number}"}
            self.put(PODS, f"w-{number}", metadata={"labels": labels}, spec=spec, status=status)

    def uncordon(self, name: str) -> None:
        """As a person does it."""
        self.put(NODES, name, spec={}, status=self.nodes[name]["status"])

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


BROKEN = failed("GPU 3: Xid 79", "hardware")

SUSPECTED = "HardwareIssuesSuspected"


class Cluster:
    """Machines m-0 to m-3 with a worker w-0 to w-3 each, their clock, a Slurm, and the whole watcher."""

    def __init__(self, token: Path) -> None:
        self.time = NOW
        self.slurmctld = FakeSlurmctld(self.wall, {f"w-{number}": FakeNode(states={"IDLE"}) for number in range(4)})
        self.nodes = self.slurmctld.nodes
        self.kubernetes = WatchedMachines(len(self.nodes))
        self.log: list[str] = []
        port = self.kubernetes.port
        self.kube = Kube(host="127.0.0.1", port=port, namespace="ns", tls=False, service_account=token)
        self.results: dict[str, dict[str, Result]] = {name: {"gpu-xid": OK} for name in self.nodes}
        self.start()

    def wall(self) -> float:
        """The clock."""
        return self.time

    def start(self, *, condition: str = "") -> None:
        """Start a watcher, in the place of the last one."""
        slurm, log = Slurm(runner=self.slurmctld.runner), self.log.append
        machines = Machines(
            pods=Followed(self.kubernetes.places),
            nodes=Followed(self.kubernetes.machines),
            drain_conditions=frozenset({SUSPECTED}),
            probe=lambda *_: True,
        )
        rules = Rules(max_unavailable=Limit(number=1), after=600, condition=condition)
        releaser = Releaser(kube=self.kube, slurm=slurm, copies=machines, rules=rules, log=log, wall=self.wall)
        by = policy(requeue_after=60, frees_broken=True)
        self.watcher = Watcher(slurm=slurm, policy=by, log=log, machines=machines, releaser=releaser, wall=self.wall)

    def round(self, later: float = 2.0) -> None:
        self.time += later
        for name, results in self.results.items():
            self.nodes[name].comment = encode(Report(at=int(self.time), results=results))
        self.watcher.round()

    def play(self, story: str) -> None:
        """What happens to the first machine; see `play`."""
        happens: dict[str, Callable[[], object]] = {
            "break": lambda: self.results.update({"w-0": {"gpu-xid": BROKEN}}),
            "heal": lambda: self.results.update({"w-0": {"gpu-xid": OK}}),
            "uncordon": lambda: self.kubernetes.uncordon("m-0"),
        }
        play(story, lambda later: self.round(2.0 if later is None else later), happens)

    def drained(self) -> list[str]:
        return [name for name, node in self.nodes.items() if "DRAIN" in node.states]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Four machines, and the watcher that may release them."""
    made = Cluster(tmp_path)
    yield made
    made.kubernetes.close()


REASON = "health/gpu-xid [hardware]: GPU 3: Xid 79"


def test_a_broken_machine_is_released_and_a_person_puts_it_back_to_use(cluster: Cluster) -> None:
    cluster.start(condition=SUSPECTED)
    cluster.play("break; round; 599 s")
    assert cluster.drained() == ["w-0"]
    assert cluster.kubernetes.changes == []
    cluster.start(condition=SUSPECTED)  # a restart at any point changes nothing
    cluster.play("20 rounds")
    assert cluster.kubernetes.changes == [f"{SUSPECTED}=True m-0", "cordon m-0"]
    assert cluster.kubernetes.annotations("m-0") == {RELEASED_FOR: "health/gpu-xid"}
    assert cluster.kubernetes.machines()["m-0"].conditions == {
        SUSPECTED: "slurmstack: w-0: health/gpu-xid: GPU 3: Xid 79"
    }
    assert cluster.nodes["w-0"].reason == REASON
    cluster.play("heal; 20 rounds")
    assert cluster.drained() == ["w-0"]
    assert len(cluster.kubernetes.changes) == 2
    cluster.play("uncordon; 20 rounds")
    assert cluster.drained() == []
    assert cluster.kubernetes.condition("m-0", SUSPECTED) == "False"
    assert cluster.kubernetes.annotations("m-0") == {}
    assert not cluster.kubernetes.is_cordoned("m-0")
    assert sum("machine m-0 (node w-0)" in line for line in cluster.log) == 2


@pytest.mark.parametrize("change", [{"reason": "bad fan"}, {"jobs": ("17",)}])
def test_a_node_that_is_not_as_it_was_seen_keeps_its_machine(cluster: Cluster, change: dict[str, Any]) -> None:
    cluster.play("break; round")
    cluster.slurmctld.before_change = lambda: vars(cluster.nodes["w-0"]).update(change)
    cluster.round(later=600)
    assert cluster.kubernetes.changes == []


def test_the_end_of_a_pod_does_not_take_our_drain_for_its_own() -> None:
    """Else `leave` would delete the record, and the new pod would take jobs before its machine is checked."""
    record = NodeRecord(name="w-0", states=frozenset({"IDLE", "DRAIN"}), reason=REASON)
    assert record.is_drained
    assert not is_ours(record)
