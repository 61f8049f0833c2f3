"""Node records are removed only when it is certain that the node is gone for good."""

from __future__ import annotations

from typing import Any, cast

from images.common.command import Result
from images.common.kubernetes import Kube, KubeError, Object
from images.common.slurm_records import nodes_in
from images.controller.control import Slurmctld
from images.controller.node_list import NodeList
from images.controller.records import Reaper, removable
from tests.fakes.commands import FakeRunner

GONE = ["DOWN", "DYNAMIC_NORM", "NOT_RESPONDING"]


def nodes(**states: list[str]) -> str:
    return "\n".join(
        f"NodeName={name.replace('_', '-')} Arch=x86_64 State={'+'.join(state)} Weight=1"
        for name, state in states.items()
    )


def pod(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}}


def pool(name: str, replicas: int) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"replicas": replicas}}


def names(text: str, pods: list[str], **pools: int) -> list[str]:
    return removable(nodes_in(text), [pod(name) for name in pods], [pool(name, size) for name, size in pools.items()])


CLOUD = ("CLOUD", "DYNAMIC_NORM")


def test_only_what_is_gone_for_good_is_removed() -> None:
    for node, pods, is_removed in [
        ({"default_3": GONE}, [], True),  # beyond the pool's size
        ({"default_2": GONE}, [], False),
        ({"gpu_0": GONE}, [], True),  # of a removed pool
        ({"default_3": GONE}, ["default-3"], False),  # its pod still drains
        ({"default_3": [*GONE, "POWERED_DOWN"]}, [], False),
        ({"default_3": [*GONE, "COMPLETING"]}, [], False),
        ({"default_3": ["IDLE", "DYNAMIC_NORM", "DRAIN"]}, [], False),  # it answers
        ({"default_3": ["DOWN", "NOT_RESPONDING"]}, [], False),  # it is written in slurm.conf
        ({"laptop": GONE}, [], False),  # no pod has such a name
        # When an elastic pool goes, slurmctld takes its nodes for nodes that are up, and would give them jobs.
        ({"default_0": ["IDLE+POWERED_DOWN", *CLOUD]}, [], True),
        ({"default_0": ["IDLE+POWERED_DOWN", *CLOUD]}, ["default-0"], False),
        ({"default_0": ["IDLE+COMPLETING", *CLOUD]}, [], False),
    ]:
        removed = [name.replace("_", "-") for name in node] if is_removed else []
        assert names(nodes(**node), pods, default=3) == removed, node
    assert removable(nodes_in(nodes(gpu_0=["IDLE", *CLOUD])), [], [], ["gpu"]) == []


class Api:
    def __init__(self, *, broken: bool = False) -> None:
        self.broken = broken
        self.asked = 0

    def list_pods(self) -> list[Object]:
        self.asked += 1
        if self.broken:
            raise KubeError("no answer")
        return []

    def list_stateful_sets(self) -> list[Object]:
        self.asked += 1
        return [pool("default", 1)]


class FakeSlurmctld(Slurmctld):
    def __init__(self, text: str | None, refuses: str = "") -> None:
        super().__init__(runner=FakeRunner())
        self.text = text
        self.refuses = refuses
        self.deleted: list[str] = []
        self.wanted: frozenset[str] | None = frozenset()

    def wanted_nodes(self) -> frozenset[str] | None:
        return self.wanted

    def nodes_text(self) -> str | None:
        return self.text

    def undrain(self, nodes: str) -> Result:
        raise AssertionError(nodes)

    def delete_node(self, name: str) -> Result:
        self.deleted.append(name)
        return Result(code=1, stderr=self.refuses) if self.refuses else Result(code=0)


def reaper_of(api: Api, slurmctld: FakeSlurmctld, log: list[str]) -> Reaper:
    nodes = NodeList(slurmctld=slurmctld)
    return Reaper(api=cast("Kube", api), nodes=nodes, wanted_nodes=slurmctld.wanted_nodes, log=log.append)


def one_round(api: Api, slurmctld: FakeSlurmctld) -> list[str]:
    log: list[str] = []
    reaper_of(api, slurmctld, log).round()
    return log


def test_a_dead_record_is_removed_and_told_but_not_where_the_api_does_not_answer() -> None:
    slurmctld = FakeSlurmctld(nodes(default_3=GONE, default_0=["IDLE", "DYNAMIC_NORM"]))
    assert "left alone" in one_round(Api(broken=True), slurmctld)[0]
    assert slurmctld.deleted == []
    assert "default-3" in one_round(Api(), slurmctld)[0]
    assert slurmctld.deleted == ["default-3"]
    api = Api()
    one_round(api, FakeSlurmctld(nodes(default_0=["IDLE", "DYNAMIC_NORM"])))
    one_round(api, FakeSlurmctld(None))  # slurmctld is away
    assert api.asked == 0


def test_a_record_that_a_pending_job_asks_for_stays_until_it_no_longer_does() -> None:
    slurmctld, log = FakeSlurmctld(nodes(default_3=GONE, default_4=GONE)), list[str]()
    reaper = reaper_of(Api(), slurmctld, log)

    slurmctld.wanted = frozenset({"default-3"})
    reaper.round()
    reaper.round()

    assert set(slurmctld.deleted) == {"default-4"}
    assert [line for line in log if "default-3" in line] == [
        "the record of node default-3 stays for now: a pending job asks for it by name"
    ]

    slurmctld.wanted = None
    reaper.round()
    assert "default-3" not in slurmctld.deleted, "slurmctld did not answer"

    slurmctld.wanted = frozenset()
    reaper.round()
    assert "default-3" in slurmctld.deleted


def test_a_refusal_is_told_once() -> None:
    log: list[str] = []
    reaper = reaper_of(Api(), FakeSlurmctld(nodes(default_3=GONE), refuses="in a reservation"), log)

    reaper.round()
    reaper.round()

    assert len(log) == 1
    assert "in a reservation" in log[0]
