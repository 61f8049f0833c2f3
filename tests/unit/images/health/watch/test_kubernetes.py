"""What Kubernetes is told: events about workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from images.common.health.slurm import Record
from images.common.kubernetes import KubeError
from images.health.watch.decide import Action, Kind
from images.health.watch.kube_write import WritingKube
from images.health.watch.kubernetes import MOST_WAITING, Teller
from images.health.watch.machines import Machine, Machines, Place
from tests.unit.images.health.watch.followed import Followed
from tests.unit.images.health.watch.views import NOW, view


@dataclass(frozen=True, kw_only=True)
class FakeKube(WritingKube):
    """Keeps what is written."""

    written: list[tuple[str, str, str, Any]] = field(default_factory=list)
    refuses: str = ""

    def send(self, method: str, path: str, body: Mapping[str, Any], content_type: str = "application/json") -> None:
        self.written.append((method, path, content_type, body))
        if self.refuses:
            raise KubeError(self.refuses)


@pytest.fixture
def kube() -> FakeKube:
    return FakeKube(host="127.0.0.1", port=9, namespace="ns", tls=False)


class Setting:
    """A teller on one machine with one worker."""

    def __init__(self, kube: FakeKube) -> None:
        nodes = Followed({"m-0": Machine(ready="True", conditions={})})
        pods = Followed({"w-0": Place(node="m-0", uid="u0")})
        machines = Machines(pods=pods, nodes=nodes)  # type: ignore[arg-type]
        machines.findings([Record(name="w-0", states=frozenset({"IDLE"}))], NOW)
        self.log: list[str] = []
        self.teller = Teller(kube=kube, machines=machines, log=self.log.append)


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
    setting = Setting(FakeKube(host="127.0.0.1", port=9, namespace="ns", tls=False, refuses="403 events is forbidden"))
    for _ in range(3):
        setting.teller.acted(Action(kind=Kind.DRAIN, node=view("w-0"), reason="r"), NOW)
        setting.teller.write_waiting()
    assert setting.log == ["Kubernetes was not told: 403 events is forbidden"]


def test_a_stuck_api_server_holds_up_nobody_and_fills_no_memory(kube: FakeKube) -> None:
    setting = Setting(kube)
    for _ in range(MOST_WAITING + 2):
        setting.teller.acted(Action(kind=Kind.DRAIN, node=view("w-0"), reason="r"), NOW)
    assert setting.log == ["Kubernetes is too slow: a message for it is left out"] * 2
