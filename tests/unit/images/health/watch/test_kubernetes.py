"""What Kubernetes is told: conditions of machines, events about workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from images.common.kubernetes import KubeError
from images.health.slurm import Record
from images.health.watch.decide import Action, Kind
from images.health.watch.kube_write import WritingKube
from images.health.watch.kubernetes import MOST_WAITING, TRY_AGAIN_SECONDS, Teller, conditions, says_the_same
from images.health.watch.machines import CONDITION, Machine, Machines, Place, Told
from images.health.watch.view import WELL_STALE_SECONDS, NodeView
from tests.unit.images.health.tables import Like, table
from tests.unit.images.health.watch.followed import Followed
from tests.unit.images.health.watch.views import NOW, OK, UNKNOWN, failed, found, view

PLACES = {"w-0": Place(node="m-0", uid="u0"), "w-1": Place(node="m-0"), "w-2": Place(node="m-2"), "w-3": Place(node="")}
PLACES |= {"late": Place(node="m-9", started=NOW - 99), "in-time": Place(node="m-9", started=NOW - 100)}
XID = failed("Xid 79", "hardware")
FULL = failed("full")
SHOWN = Told(status="True", reason="NodeFault", message="w-0: disks: full")


@dataclass(frozen=True, kw_only=True)
class FakeKube(WritingKube):
    """Keeps what is written."""

    written: list[tuple[str, str, str, Any]] = field(default_factory=list)
    refuses: str = ""

    def send(self, method: str, path: str, body: Mapping[str, Any], content_type: str = "application/json") -> None:
        self.written.append((method, path, content_type, body))
        if self.refuses:
            raise KubeError(self.refuses)

    def statuses(self) -> list[str]:
        """Of all conditions that were written."""
        return [body["status"]["conditions"][0]["status"] for *_, body in self.written]


@pytest.fixture
def kube() -> FakeKube:
    return FakeKube(host="127.0.0.1", port=9, namespace="ns", tls=False)


class Setting:
    """A teller on one machine with one worker."""

    def __init__(self, kube: FakeKube) -> None:
        self.nodes = Followed({"m-0": Machine(ready="True", conditions={})})
        pods = Followed({"w-0": Place(node="m-0", uid="u0")})
        self.machines = Machines(pods=pods, nodes=self.nodes)  # type: ignore[arg-type]
        self.machines.findings([Record(name="w-0", states=frozenset({"IDLE"}))], NOW)
        self.log: list[str] = []
        self.teller = Teller(kube=kube, machines=self.machines, log=self.log.append)

    def see(self, now: float = NOW, **findings: Any) -> None:
        """A round of the watcher; without findings the worker has left."""
        self.teller.saw([view("w-0", **findings)] if findings else [], now)
        self.teller.write_waiting()

    def shows(self, told: Told, **more: Any) -> None:
        """Kubernetes shows this condition."""
        self.nodes.copy["m-0"] = Machine(ready="True", conditions={}, told=told, **more)


# ---------------------------------------------------------------- the condition


BEFORE = found(XID, ago=100)
NO_FAULT = "False NoFaultFound: no check has found a fault"


@table(
    "views, told",
    {
        "a fault is told of its machine alone": (
            [view("w-0", gpu_xid=failed("GPU 3: Xid 79", "hardware"), disks=OK), view("w-2", disks=OK)],
            {"m-0": "True HardwareFault: w-0: gpu-xid: GPU 3: Xid 79", "m-2": NO_FAULT},
        ),
        "workers of one machine are told together": (
            [view("w-0", disks=FULL), view("w-1", gpu_xid=XID)],
            {"m-0": "True HardwareFault: w-0: disks: full; w-1: gpu-xid: Xid 79"},
        ),
        "a user's fault": ([view("w-0", memory=failed("left behind", "user"))], {"m-0": NO_FAULT}),
        "not checked": ([view("w-0", disks=UNKNOWN)], {"m-0": "Unknown ..."}),
        "an old report": ([view("w-0", disks=found(OK, ago=WELL_STALE_SECONDS + 1))], {"m-0": "Unknown ..."}),
        "not all checked": ([view("w-0", disks=UNKNOWN, dns=OK)], {"m-0": f"{NO_FAULT}; w-0: disks: not checked"}),
        "what Kubernetes said itself": ([view("w-0", kubernetes=failed("cordoned"))], {"m-0": "Unknown ..."}),
        "found on the machine before": ([view("late", gpu_xid=BEFORE)], {"m-9": "Unknown ..."}),
    },
)
def test_faults_are_told_of_machines(views: list[NodeView], told: dict[str, str]) -> None:
    found = conditions(views, PLACES, NOW)
    said = {name: f"{one.status} {one.reason}: {one.message}" for name, one in found.items()}
    assert said == {name: Like(form) for name, form in told.items()}


def test_figures_that_move_are_not_told_again() -> None:
    one, moved, other = (
        Told(status="True", reason="NodeFault", message=f"w-0: {fault}")
        for fault in ("disks: 97.5 % used", "disks: 98 % used", "dns: no answer")
    )
    assert says_the_same(one, moved)
    assert not says_the_same(one, other)
    assert not says_the_same(None, one)


# ---------------------------------------------------------------- writing


def test_a_condition_is_merged_into_the_node(kube: FakeKube) -> None:
    Setting(kube).see(gpu_xid=XID)
    ((method, path, content_type, body),) = kube.written
    assert (method, path) == ("PATCH", "/api/v1/nodes/m-0/status")
    assert content_type == "application/strategic-merge-patch+json"
    (condition,) = body["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == (CONDITION, "True", "HardwareFault")
    assert condition["lastTransitionTime"].endswith("Z")


def test_a_condition_is_written_once_and_again_only_if_kubernetes_does_not_show_it(kube: FakeKube) -> None:
    setting = Setting(kube)
    for later in (0, 2, 4):
        setting.see(NOW + later, disks=FULL)
    assert len(kube.written) == 1
    setting.see(NOW + TRY_AGAIN_SECONDS, disks=FULL)
    assert len(kube.written) == 2
    setting.shows(SHOWN)
    setting.see(NOW + 3 * TRY_AGAIN_SECONDS, disks=FULL)
    assert len(kube.written) == 2
    setting.see(NOW + 3 * TRY_AGAIN_SECONDS, disks=OK)
    assert kube.statuses() == ["True", "True", "False"]


def test_a_machine_that_the_workers_left_is_unknown_and_a_released_one_keeps_what_was_found_there(
    kube: FakeKube,
) -> None:
    setting = Setting(kube)
    setting.see(gpu_xid=XID)
    shown = Told(status="True", reason="HardwareFault", message="w-0: gpu-xid: Xid 79")
    setting.shows(shown, cordoned=True, released_for="health/gpu-xid")
    setting.see()
    assert len(kube.written) == 1
    setting.shows(shown)
    setting.see()
    assert kube.statuses()[-1] == "Unknown"


def test_another_message_is_no_other_status(kube: FakeKube) -> None:
    """Controllers go by how long a condition has been true."""
    setting = Setting(kube)
    setting.shows(SHOWN)
    setting.see(disks=FULL, dns=failed("no answer"))
    setting.nodes.synced = False
    setting.see(disks=OK)
    assert len(kube.written) == 1, "while the copy may be old nothing is written"
    setting.nodes.synced = True
    setting.see(disks=OK)
    same, other = (body["status"]["conditions"][0] for *_, body in kube.written)
    assert "lastTransitionTime" not in same
    assert same["lastHeartbeatTime"]
    assert other["lastTransitionTime"]


def test_what_was_done_is_an_event_about_the_pod(kube: FakeKube) -> None:
    setting = Setting(kube)
    setting.teller.acted(Action(kind=Kind.DRAIN, node=view("w-0"), reason="health/disks [node]: full"), NOW)
    for kind in set(Kind) - {Kind.DRAIN}:
        setting.teller.acted(Action(kind=kind, node=view("w-7"), reason="r" * 2000), NOW)
    setting.teller.write_waiting()
    (method, path, content_type, body) = kube.written[0]
    assert (method, path, content_type) == ("POST", "/api/v1/namespaces/ns/events", "application/json")
    assert (body["reason"], body["type"]) == ("SlurmNodeDrained", "Warning")
    assert body["message"] == "drain w-0 (machine m-0): health/disks [node]: full"
    pod = {"apiVersion": "v1", "kind": "Pod", "name": "w-0", "namespace": "ns", "uid": "u0"}
    assert body["involvedObject"] == pod
    assert len({body["reason"] for *_, body in kube.written}) == len(Kind)
    assert all(len(body["message"]) <= 1024 for *_, body in kube.written)


def test_what_may_not_be_written_is_logged_once() -> None:
    setting = Setting(FakeKube(host="127.0.0.1", port=9, namespace="ns", tls=False, refuses="403 nodes is forbidden"))
    for later in range(3):
        setting.see(NOW + later * TRY_AGAIN_SECONDS, disks=FULL)
    assert setting.log == ["Kubernetes was not told: 403 nodes is forbidden"]


def test_a_stuck_api_server_holds_up_nobody_and_fills_no_memory(kube: FakeKube) -> None:
    setting = Setting(kube)
    for _ in range(MOST_WAITING + 2):
        setting.teller.acted(Action(kind=Kind.DRAIN, node=view("w-0"), reason="r"), NOW)
    assert setting.log == ["Kubernetes is too slow: a message for it is left out"] * 2
