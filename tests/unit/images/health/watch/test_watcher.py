"""Rounds of the watcher against a Slurm that changes under it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from config.sections.health import Health
from images.common.health.report import Finding
from images.common.health.slurm import Record
from images.health.watch import watcher
from images.health.watch.decide import Limit, Policy
from images.health.watch.machines import Machines
from images.health.watch.release import Rules
from images.health.watch.watcher import REQUEUE_AGAIN_SECONDS, Watcher, build
from slurm.health import watch_settings
from tests.unit.images.health.watch.views import OK, Followed, Watched, failed, policy


class FakeMachines(Machines):
    """Says what it is told to say."""

    def __init__(self) -> None:
        self.says: dict[str, Finding] = {}

    def findings(self, records: Iterable[Record], now: float) -> dict[str, Finding]:
        del records, now
        return self.says


class Cluster(Watched):
    """Four nodes whose machines are as a test says."""

    def __init__(self) -> None:
        super().__init__()
        self.machines = FakeMachines()
        self.happens = {  # to w-1
            "fault": lambda: self.report("w-1", disks=failed("/jail 97 % used")),
            "well": lambda: self.report("w-1", disks=OK),
            "restart": self.start,
            "cordon": self.cordon,
        }
        self.start()

    def start(self, by: Policy | None = None) -> None:
        self.watch(by or policy(), self.machines)

    def cordon(self, *, lost: bool = False) -> None:
        """Somebody wants the machine of w-1 free, or it is lost."""
        cordoned = failed("machine m is cordoned")
        self.machines.says["w-1"] = Finding(result=cordoned, at=self.time, declared=not lost, lost=lost)


FULL = failed("/jail 97 % used")
FULL_REASON = "health/disks [node]: /jail 97 % used"


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def test_a_fault_drains_exactly_that_node_and_it_returns_when_the_fault_is_gone(cluster: Cluster) -> None:
    for name in cluster.nodes:
        cluster.report(name, disks=OK)
    cluster.round()
    assert cluster.slurmctld.changes() == []
    cluster.play("fault; round; restart; 30 s")
    assert cluster.drained() == ["w-1"]
    assert cluster.slurmctld.changes() == [f"scontrol update nodename=w-1 state=drain reason={FULL_REASON}"]
    cluster.play("well; restart; round; 80 s")
    assert cluster.drained() == ["w-1"], "it stands for two minutes"
    cluster.play("well; 10 s")
    assert cluster.drained() == []
    assert cluster.nodes["w-1"].reason == ""
    assert cluster.log == [f"drain w-1: {FULL_REASON}", "resume w-1: lifted: health/disks"]


def test_an_administrator_who_drains_in_the_same_moment_wins(cluster: Cluster) -> None:
    cluster.report("w-1", disks=FULL)
    node = cluster.nodes["w-1"]

    def administrator() -> None:
        node.states.add("DRAIN")
        node.reason = "bad fan"

    cluster.slurmctld.before_change = administrator
    cluster.play("round; round")
    assert node.reason == "bad fan"
    assert cluster.slurmctld.changes() == []


def test_a_busy_node_whose_drain_is_lifted_does_not_keep_our_reason(cluster: Cluster) -> None:
    """Else a drain by slurmctld, which keeps what is there, would look like ours and be lifted."""
    node = cluster.nodes["w-1"]
    node.states = {"MIXED"}
    cluster.play("fault; round; 30 s; well; round")
    node.states.add("DRAIN")
    cluster.play("30 s; well; round")
    assert cluster.drained() == ["w-1"]


def test_a_lost_machine_has_its_jobs_requeued_and_takes_none_until_it_is_back(cluster: Cluster) -> None:
    node = cluster.nodes["w-1"]
    node.states, node.jobs = {"MIXED"}, ("17", "18")
    cluster.cordon(lost=True)
    cluster.round()
    assert cluster.slurmctld.requeued == ["17", "18"]
    assert node.states == {"DOWN", "DRAIN"}
    order = [command.split("state=")[1].split()[0] for command in cluster.slurmctld.changes()]
    assert order == ["drain", "down"]
    cluster.time += 60
    node.states = {"IDLE", "DRAIN"}  # slurmd registers again
    cluster.machines.says["w-1"] = Finding(result=OK, at=cluster.time)
    cluster.round()
    assert cluster.drained() == []


def test_jobs_are_requeued_at_the_deadline_and_those_that_cannot_be_are_told(cluster: Cluster) -> None:
    cluster.start(policy(requeue_after=100))
    node = cluster.nodes["w-1"]
    node.states, node.jobs = {"MIXED"}, ("17", "18")
    cluster.slurmctld.refuses["18"] = "Requested operation is presently disabled"
    cluster.play("cordon; round; cordon; 98 s")
    assert cluster.slurmctld.requeued == []
    for _ in range(5):
        cluster.play("cordon; round")
    assert cluster.slurmctld.requeued == ["17"]
    assert cluster.log[-1] == "cannot requeue w-1: job 18: Requested operation is presently disabled"
    tried = cluster.slurmctld.runner.commands.count("scontrol requeue incomplete 18")
    assert tried == 1
    looks = sum("show node w-1 " in command for command in cluster.slurmctld.runner.commands)
    assert looks == 2, "for the drain and for the jobs, not in each round"
    cluster.cordon()
    cluster.round(later=REQUEUE_AGAIN_SECONDS)
    assert cluster.slurmctld.runner.commands.count("scontrol requeue incomplete 18") == 2


def test_the_deadline_of_jobs_on_a_node_that_is_drained_begins_when_its_machine_is_cordoned(cluster: Cluster) -> None:
    cluster.start(policy(requeue_after=100))
    cluster.nodes["w-1"].states, cluster.nodes["w-1"].jobs = {"MIXED"}, ("17",)
    cluster.play("fault; round; 500 s; cordon; round; fault; cordon; 99 s")
    assert cluster.slurmctld.requeued == []
    cluster.machines.says.clear()
    cluster.play("fault; round; cordon; round")  # it was uncordoned meanwhile
    assert cluster.slurmctld.requeued == []
    cluster.play("fault; cordon; 100 s")
    assert cluster.slurmctld.requeued == ["17"]


def built(monkeypatch: pytest.MonkeyPatch, log: list[str] | None = None, **health: Any) -> Watcher:
    """The watcher of a stack file, in a pod."""
    follow: Any = lambda *_: Machines(pods=Followed({}), nodes=Followed({}))  # noqa: E731
    monkeypatch.setattr(watcher, "follow_machines", follow)
    in_pod = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "NAMESPACE": "ns"}
    settings = json.loads(watch_settings(Health.model_validate(health)))
    return build(settings, in_pod, (log if log is not None else []).append)


def test_the_watcher_does_what_the_stack_file_says(monkeypatch: pytest.MonkeyPatch) -> None:
    machines = {
        "requeue_after": 60, "release": "cordon", "release_after": 0, "release_condition": "Suspected",
        "max_unavailable": "5%",
    }  # fmt: skip
    health = {"report_only": ["munge"], "disabled": ["dns"], "tests": {"enabled": True}, "machines": machines}
    made = built(monkeypatch, max_drained=3, **health)  # type: ignore[arg-type]
    told = frozenset({"dns", "munge"})
    assert made.policy == Policy(max_drained=Limit(number=3), report_only=told, requeue_after=60.0, frees_broken=True)
    assert made.releaser is not None
    limit = Limit(number=5, percent=True)
    assert made.releaser.rules == Rules(max_unavailable=limit, after=0, condition="Suspected", report_only=told)


def test_machines_that_are_not_followed_are_not_looked_at_and_their_drains_are_lifted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log: list[str] = []
    made = built(monkeypatch, log, machines={"follow": False})
    assert (made.machines, "kubernetes" in made.policy.report_only) == (None, True)
    assert log == ["nodes are watched by Slurm's records alone"]
