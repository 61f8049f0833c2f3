"""Machines are released, as faults, people and limits want it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from images.common.slurm_node import is_ours
from images.common.slurm_records import NodeRecord
from images.health.watch.machines import RELEASED_FOR
from tests.unit.images.health.watch.release_cluster import SUSPECTED, Cluster


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


def test_a_new_machine_is_not_released_for_what_the_one_before_had(cluster: Cluster) -> None:
    cluster.start(max_unavailable="2")
    cluster.play("break; round; 600 s")
    assert cluster.released() == ["m-0"]
    cluster.kubernetes.add_node("m-9")
    cluster.kubernetes.add_pod("w-0", "m-9", started=cluster.time)
    del cluster.results["w-0"]  # the record still has the report of the other machine
    cluster.play("3 rounds; 650 s")
    assert cluster.released() == ["m-0"]
    assert cluster.drained() == ["w-0"]
    cluster.play("heal; 3 rounds")
    assert cluster.drained() == []


def test_a_machine_that_somebody_uncordons_though_it_is_broken_is_left_to_them(cluster: Cluster) -> None:
    cluster.play("break; round; 600 s; round; uncordon; 5000 s; 20 rounds")
    assert not cluster.kubernetes.is_cordoned("m-0")
    assert cluster.drained() == ["w-0"]
    assert cluster.released() == ["m-0"]


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
