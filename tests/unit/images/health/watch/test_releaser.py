"""Machines are released, as faults, people and limits want it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from images.common.health.report import stamp
from images.common.health.slurm import Slurm
from images.common.kubernetes import WORKER_PODS, Kube
from images.common.slurm_node import is_ours
from images.common.slurm_records import NodeRecord
from images.health.watch.decide import Limit
from images.health.watch.machines import RELEASED_FOR, Machine, Machines, Place, machine_of, place_of
from images.health.watch.release import Releaser, Rules
from tests.fakes.kubernetes import FakeKubernetes
from tests.fakes.kubernetes_http import Question
from tests.unit.images.health.watch.views import NOW, OK, Followed, Watched, failed, policy

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


class Cluster(Watched):
    """Machines m-0 to m-3 with a worker w-0 to w-3 each, and the watcher that may release them."""

    def __init__(self, token: Path) -> None:
        super().__init__()
        self.kubernetes = WatchedMachines(4)
        port = self.kubernetes.port
        self.kube = Kube(host="127.0.0.1", port=port, namespace="ns", tls=False, service_account=token)
        self.is_broken = False
        self.happens = {  # to the first machine
            "break": lambda: setattr(self, "is_broken", True),
            "heal": lambda: setattr(self, "is_broken", False),
            "uncordon": lambda: self.kubernetes.uncordon("m-0"),
        }
        self.start()

    def start(self, condition: str = "") -> None:
        places, nodes = Followed(self.kubernetes.places), Followed(self.kubernetes.machines)
        drains = frozenset({SUSPECTED})
        machines = Machines(pods=places, nodes=nodes, drain_conditions=drains, probe=lambda *_: True)
        rules = Rules(max_unavailable=Limit(number=1), after=600, condition=condition)
        slurm = Slurm(runner=self.slurmctld.runner)
        releaser = Releaser(
            kube=self.kube, slurm=slurm, copies=machines, rules=rules, log=self.log.append, wall=self.wall
        )
        self.watch(policy(requeue_after=60, frees_broken=True), machines, releaser)

    def round(self, later: float = 2.0) -> None:
        for name in self.nodes:
            self.report(name, ahead=later, gpu_xid=BROKEN if self.is_broken and name == "w-0" else OK)
        super().round(later)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Four machines, and the watcher that may release them."""
    made = Cluster(tmp_path)
    yield made
    made.kubernetes.close()


REASON = "health/gpu-xid [hardware]: GPU 3: Xid 79"


def test_a_broken_machine_is_released_and_a_person_puts_it_back_to_use(cluster: Cluster) -> None:
    cluster.start(SUSPECTED)
    cluster.play("break; round; 599 s")
    assert cluster.drained() == ["w-0"]
    assert cluster.kubernetes.changes == []
    cluster.start(SUSPECTED)  # a restart at any point changes nothing
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
