"""Machines are released, as faults, people and limits want it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from images.common.slurm_node import is_ours
from images.common.slurm_records import NodeRecord
from images.health.watch.machines import RELEASED_FOR
from images.health.watch.release import TRY_AGAIN_SECONDS
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
    assert cluster.events() == [(step, "w-0") for step in ("SlurmMachineReleased", "SlurmMachineWell")]
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


def test_a_worker_that_leaves_is_drained_until_its_new_machine_is_checked(cluster: Cluster) -> None:
    cluster.start(evict=True)
    cluster.play("break; round; 600 s; round")
    assert cluster.kubernetes.changes == ["cordon m-0", "evict w-0"]
    cluster.kubernetes.add_node("m-9")
    cluster.kubernetes.add_pod("w-0", "m-9", started=cluster.time)
    del cluster.results["w-0"]  # the record still has the report of the other machine
    cluster.play("3 rounds; 650 s")
    assert cluster.drained() == ["w-0"]
    assert cluster.released() == ["m-0"]
    cluster.play("heal; 3 rounds")
    assert cluster.drained() == []
    assert cluster.kubernetes.is_cordoned("m-0")
    del cluster.kubernetes.nodes["m-0"]  # the cloud's controller, or a person
    cluster.kubernetes.add_node("m-0")
    cluster.kubernetes.add_pod("w-0", "m-0", started=cluster.time)
    cluster.play("break; round; 600 s")
    assert cluster.released() == ["m-0"]


def test_nothing_is_cordoned_until_the_condition_can_be_set(cluster: Cluster) -> None:
    cluster.kubernetes.refuses["/status"] = 403
    cluster.start(condition=SUSPECTED)
    cluster.play("break; round; 600 s; 10 rounds")
    assert cluster.kubernetes.changes == []
    (cannot,) = [line for line in cluster.log if line.startswith("cannot")]
    assert "403 " in cannot
    cluster.kubernetes.refuses.clear()
    cluster.round(later=TRY_AGAIN_SECONDS)
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
    cluster.kubernetes.add_pod("w-0", "m-0", started=cluster.time)
    cluster.play("2 rounds")
    assert cluster.released() == ["m-1", "m-2"]


def test_a_dry_run_changes_nothing(cluster: Cluster) -> None:
    cluster.play("break; round")
    cluster.start(dry_run=True)
    cluster.round(later=600)
    assert any("would release machine m-0" in line for line in cluster.log)
    assert cluster.kubernetes.changes == []
    assert cluster.events() == []


@pytest.mark.parametrize(
    "change", [{"states": {"IDLE"}}, {"reason": "bad fan"}, {"reason": "health/disks [node]: full"}, {"jobs": ("17",)}]
)
def test_a_node_that_is_not_as_it_was_seen_keeps_its_machine(cluster: Cluster, change: dict[str, Any]) -> None:
    cluster.play("break; round")
    cluster.pool.later = []
    cluster.round(later=600)
    vars(cluster.nodes["w-0"]).update(change)
    for move in cluster.pool.later:
        move()
    assert cluster.pool.later
    assert cluster.kubernetes.changes == []


@pytest.mark.parametrize("change", ["uncordoned", "replaced"])
def test_a_worker_stays_on_a_machine_that_is_not_as_it_was_seen(cluster: Cluster, change: str) -> None:
    cluster.start(evict=True)
    cluster.play("break; round; 600 s")
    cluster.pool.later = []
    cluster.round()
    if change == "uncordoned":
        cluster.kubernetes.cordon("m-0", cordoned=False)
    else:
        cluster.kubernetes.add_node("m-0")
    cluster.pool.later.pop()()
    assert cluster.kubernetes.changes == ["cordon m-0"]


def test_a_worker_that_got_a_job_is_not_evicted(cluster: Cluster) -> None:
    cluster.start(evict=True)
    cluster.watcher.policy = policy()
    cluster.play("break; round; 600 s")
    cluster.nodes["w-0"].jobs = ("17",)
    cluster.play("3 rounds")
    assert cluster.kubernetes.changes == ["cordon m-0"]
    cluster.nodes["w-0"].jobs = ()
    cluster.round(later=TRY_AGAIN_SECONDS)
    assert cluster.kubernetes.changes == ["cordon m-0", "evict w-0"]


def test_the_end_of_a_pod_does_not_take_our_drain_for_its_own() -> None:
    """Else `leave` would delete the record, and the new pod would take jobs before its machine is checked."""
    record = NodeRecord(name="w-0", states=frozenset({"IDLE", "DRAIN"}), reason=REASON)
    assert record.is_drained
    assert not is_ours(record)
