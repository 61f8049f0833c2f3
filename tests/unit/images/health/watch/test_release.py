"""Which machines are released: never one too many, never one that somebody else has a hand on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from images.common.health.contract import Result
from images.common.health.report import STALE_SECONDS, Finding, stamp
from images.common.health.slurm import Slurm
from images.common.kubernetes import WORKER_PODS, Kube
from images.common.slurm_node import is_ours
from images.common.slurm_records import NodeRecord
from images.health.watch.decide import Limit, NodeView
from images.health.watch.machines import RELEASED_FOR, Machine, Machines, Place, machine_of, place_of
from images.health.watch.release import Move, Releaser, Rules, plan
from tests.fakes.kubernetes import FakeKubernetes
from tests.fakes.kubernetes_http import Question
from tests.unit.images.health.places import table
from tests.unit.images.health.watch.views import NOW, OK, Followed, Watched, failed, found, policy, view

BROKEN = failed("GPU 3: Xid 79", "hardware")
REASON = "health/gpu-xid [hardware]: GPU 3: Xid 79"
READY = Machine(ready="True", conditions={})
AWAY = replace(READY, ready="False")
CORDONED = replace(READY, cordoned=True)
RELEASED = replace(CORDONED, released_for="health/gpu-xid")
UNCORDONED = replace(RELEASED, cordoned=False)
UNWANTED = Finding(result=failed("maintenance"), at=NOW, declared=True, unwanted_since=NOW - 5000)
BY_A_PERSON = Finding(result=failed("cordoned"), at=NOW, declared=True)
WELL = view("w-0", gpu_xid=OK)
RELEASE = ["release m-0 of w-0"]
FORGET = ["forget m-0 of w-0"]


def rules(max_unavailable: str = "100", *, report_only: str = "", after: float = 600) -> Rules:
    limit = Limit.parse(max_unavailable)
    return Rules(max_unavailable=limit, after=after, report_only=frozenset(report_only.split()))


def broken(
    name: str = "w-0", *states: str, ago: float = 1000, reason: str = REASON, **findings: Result | Finding
) -> NodeView:
    """A node that is drained for a hardware fault and has no jobs."""
    findings = findings or {"gpu_xid": BROKEN}
    return view(name, *(states or ("IDLE", "DRAIN")), reason=reason, drained_ago=ago, **findings)


def machined(finding: Finding, ago: float = 1000) -> NodeView:
    """A node that is drained and whose machine Kubernetes has something to say about."""
    return broken(reason="health/kubernetes [node]: m", ago=ago, kubernetes=finding)


def second(ago: float) -> NodeView:
    """A node that is drained for its disks for long, and whose GPU has broken so long ago."""
    node = broken(reason="health/disks [node]: full", ago=5000, disks=failed(), gpu_xid=BROKEN)
    return replace(node, began={("gpu-xid", "hardware"): NOW - ago})


def started(ago: float, node: NodeView) -> NodeView:
    """The node, whose slurmd has started so long ago, perhaps on another machine."""
    return replace(node, started_at=NOW - ago)


def on(**machines: str) -> dict[str, Place]:
    """Where workers are, and have been for long. Names with `_` for `-`."""
    return {name.replace("_", "-"): Place(node=node, started=NOW - 9000) for name, node in machines.items()}


def planned(*views: NodeView, by: Rules | None = None, machine: Machine = READY) -> list[Move]:
    """A plan for w-0 on m-0; other nodes are on machines of their own."""
    places = on(**{each.name: f"m-{each.name[2:]}" for each in views})
    machines = {place.node: READY for place in places.values()} | {"m-0": machine}
    return plan(views, places, machines, by or rules(), NOW)[0]


def done(made: list[Move]) -> list[str]:
    return [f"{'release' if move.check else 'forget'} {move.machine} of {move.worker}" for move in made]


@table(
    "node, machine, limit",
    {
        "drained for a hardware fault and without jobs": (broken(), READY, "100"),
        "one that is not ready counts once": (broken(), AWAY, "1"),
        "one that maintenance wants away": (machined(UNWANTED), READY, "100"),
        "one that has broken after a drain for something else": (second(600), READY, "100"),
    },
)
def test_a_machine_is_released(node: NodeView, machine: Machine, limit: str) -> None:
    made = planned(node, view("w-1", gpu_xid=OK), by=rules(limit), machine=machine)
    assert done(made) == RELEASE
    assert made[0].check in {"gpu-xid", "kubernetes"}


@table(
    "node, machine",
    {
        "a person has cordoned it": (machined(BY_A_PERSON), READY),
        "it may almost go away by itself": (broken(ago=599), READY),
        "a condition came after the drain": (machined(replace(UNWANTED, unwanted_since=NOW - 599), ago=5000), READY),
        "found before the last job": (broken(reason="health/gpu-free [hardware]: m", gpu_free=BROKEN), READY),
        "a job ends": (broken("w-0", "IDLE", "COMPLETING", "DRAIN"), READY),
        "the check finds a fault of the node": (broken(gpu_xid=failed(fault="node")), READY),
        "the report is old": (broken(gpu_xid=found(BROKEN, ago=STALE_SECONDS + 1)), READY),
        "it breaks on a node that is drained for long": (second(599), READY),
        "found on the machine before": (started(90, broken(gpu_xid=found(BROKEN, ago=100))), READY),
        "it was released, and somebody has uncordoned it": (broken(), UNCORDONED),
        "its fault has passed, and it is still cordoned": (WELL, RELEASED),
    },
)
def test_a_machine_is_left_as_it_is_when(node: NodeView, machine: Machine) -> None:
    assert done(planned(node, machine=machine)) == []


def test_what_was_found_before_the_pod_came_to_the_machine_is_not_held_against_it() -> None:
    """Until slurmd registers the record says when that of the machine before started."""
    for began, moves in ((NOW - 50, []), (None, []), (NOW - 599, []), (NOW - 600, RELEASE)):
        places = {"w-0": Place(node="m-0", started=began)}
        assert done(plan([broken(ago=5000)], places, {"m-0": READY}, rules(), NOW)[0]) == moves


def test_a_check_that_is_only_reported_releases_nothing() -> None:
    assert done(planned(broken(), by=rules(report_only="gpu-xid"))) == []


@table(
    "other, machine, moves",
    {
        "is in use": (view("w-1"), "m-0", []),
        "is drained by us": (broken("w-1", disks=failed()), "m-0", RELEASE),
        "is elsewhere": (view("w-1"), "m-1", RELEASE),
    },
)
def test_a_machine_is_not_released_while_its_other_worker(other: NodeView, machine: str, moves: list[str]) -> None:
    places = on(w_0="m-0", w_1=machine)
    assert done(plan([broken(), other], places, {"m-0": READY, "m-1": READY}, rules(), NOW)[0]) == moves


def test_a_machine_is_forgotten_when_all_of_its_workers_take_jobs() -> None:
    places = on(w_0="m-0", w_1="m-0")
    for other, moves in ((view("w-1"), FORGET), (broken("w-1"), [])):
        assert done(plan([WELL, other], places, {"m-0": UNCORDONED}, rules(), NOW)[0]) == moves


FLEET = [broken(f"w-{number}", ago=1000 + number) for number in range(10)]
"""All broken, the last one for the longest time."""


@table(
    "nodes, machine, limit, released",
    {
        "the oldest faults go first": (FLEET[:5], READY, "2", ["m-4", "m-3"]),
        "one that is not ready counts": ([view("w-0"), broken("w-1")], AWAY, "1", []),
        "one that others have cordoned does not": ([view("w-0"), broken("w-1")], CORDONED, "1", ["m-1"]),
    },
)
def test_no_more_than_the_limit_is_released(
    nodes: list[NodeView], machine: Machine, limit: str, released: list[str]
) -> None:
    assert [move.machine for move in planned(*nodes, machine=machine, by=rules(limit))] == released


@table(
    "at, machines",
    {
        "a machine that is gone counts": ("m-1", {"m-0": READY}),
        "one that was released and left counts": ("", {"m-0": READY, "m-1": RELEASED}),
        "deleted by the cloud, without a successor yet": ("", {"m-0": READY}),
    },
)
def test_what_is_missing_counts(at: str, machines: dict[str, Machine]) -> None:
    views = [broken(), broken("w-1", "DOWN", "DRAIN")]
    assert plan(views, on(w_0="m-0", w_1=at), machines, rules("1"), NOW)[0] == []


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
