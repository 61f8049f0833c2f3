"""Machines are released, as faults, people and limits want it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from images.common.slurm_node import is_ours
from images.common.slurm_records import NodeRecord
from images.health.watch.machines import RELEASED_FOR
from images.health.watch.release import PAUSE_SECONDS
from tests.unit.images.health.watch.release_cluster import SUSPECTED, Cluster
from tests.unit.images.health.watch.views import policy


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


def test_a_machine_that_somebody_uncordons_though_it_is_broken_is_left_to_them(cluster: Cluster) -> None:
    cluster.play("break; round; 600 s; round; uncordon; 5000 s; 20 rounds")
    assert not cluster.kubernetes.is_cordoned("m-0")
    assert cluster.drained() == ["w-0"]
    assert cluster.released() == ["m-0"]


def test_the_jobs_of_a_broken_machine_end_or_are_requeued_before_it_is_released(cluster: Cluster) -> None:
    cluster.watcher.policy = policy(requeue_after=3000, frees_broken=True)
    node = cluster.nodes["w-0"]
    node.states, node.jobs = {"ALLOCATED"}, ("17",)
    cluster.play("break; round; 2000 s")
    assert cluster.released() == []
    cluster.round(later=1000)
    assert cluster.slurmctld.requeued == ["17"]
    node.states = {"IDLE", "COMPLETING", "DRAIN"}
    cluster.round()
    assert cluster.released() == []
    node.states = {"IDLE", "DRAIN"}
    cluster.round()
    assert cluster.released() == ["m-0"]


def test_nothing_is_cordoned_until_the_condition_can_be_set(cluster: Cluster) -> None:
    cluster.kubernetes.refuses["/status"] = 403
    cluster.start(condition=SUSPECTED)
    cluster.play("break; round; 600 s; 10 rounds")
    assert cluster.kubernetes.changes == []
    (cannot,) = [line for line in cluster.log if line.startswith("cannot")]
    assert "403 " in cannot
    cluster.kubernetes.refuses.clear()
    cluster.round(later=PAUSE_SECONDS)
    assert cluster.kubernetes.changes == [f"{SUSPECTED}=True m-0", "cordon m-0"]


def test_ten_faults_at_once_release_no_more_than_the_limit(cluster: Cluster) -> None:
    cluster.start(max_unavailable="2")
    cluster.break_gpu("w-0", "w-1", "w-2")
    cluster.play("round; 600 s; 40 rounds")
    assert cluster.released() == ["m-0", "m-1"]
    assert [line for line in cluster.log if "not released" in line] == [
        "not released, as no more than 2 may be unavailable: m-2"
    ]
    del cluster.kubernetes.nodes["m-0"]
    cluster.kubernetes.add_node("m-0")
    cluster.kubernetes.add_pod("w-0", "m-0")
    cluster.nodes["w-0"].started_at = int(cluster.time)
    cluster.round(later=PAUSE_SECONDS)
    assert cluster.released() == ["m-1", "m-2"]


@pytest.mark.parametrize(
    "change", [{"states": {"IDLE"}}, {"reason": "bad fan"}, {"reason": "health/disks [node]: full"}, {"jobs": ("17",)}]
)
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
