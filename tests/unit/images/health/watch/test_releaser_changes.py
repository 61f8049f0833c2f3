"""What has changed between a plan and its step: then the step is not taken, or not yet."""

from __future__ import annotations

from typing import Any

import pytest

from images.health.watch.machines import RELEASED_BY
from images.health.watch.releaser import TRY_AGAIN_SECONDS
from tests.unit.images.health.watch.release_cluster import SUSPECTED, Cluster


def test_the_limit_holds_even_if_the_copy_of_the_cluster_is_old(cluster: Cluster) -> None:
    cluster.break_gpu()
    cluster.machine_copy.frozen = cluster.kubernetes.machines()
    cluster.kubernetes.nodes["m-3"]["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    cluster.play("round; 600 s; 20 rounds")
    assert cluster.kubernetes.changes == []


def test_a_person_who_cordons_in_the_same_moment_wins(cluster: Cluster) -> None:
    cluster.play("break; round")

    def person() -> None:
        cluster.kubernetes.before_change = lambda: None
        cluster.kubernetes.cordon("m-0")

    cluster.kubernetes.before_change = person
    cluster.play("600 s; 20 rounds")
    assert cluster.kubernetes.changes == []
    assert cluster.released() == []
    assert any("409" in line for line in cluster.log)


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


def released_with_a_move_to_come(cluster: Cluster) -> None:
    """The machine is released, and the worker is to leave."""
    cluster.start(evict=True, condition=SUSPECTED)
    cluster.play("break; round; 600 s")
    assert cluster.kubernetes.changes == ["cordon m-0"]
    cluster.pool.later = []
    cluster.round()


@pytest.mark.parametrize("change", ["uncordoned", "replaced", "released by another"])
def test_a_machine_that_is_not_as_it_was_seen_is_left_alone(cluster: Cluster, change: str) -> None:
    released_with_a_move_to_come(cluster)
    if change == "uncordoned":
        cluster.kubernetes.cordon("m-0", cordoned=False)
    elif change == "replaced":
        cluster.kubernetes.add_node("m-0")
    else:
        cluster.kubernetes.nodes["m-0"]["metadata"]["annotations"][RELEASED_BY] = "other/w-0"
    assert cluster.pool.later
    cluster.pool.later.pop()()
    assert cluster.kubernetes.changes == ["cordon m-0"]


def test_a_worker_that_got_a_job_is_not_evicted(cluster: Cluster) -> None:
    cluster.start(evict=True)
    cluster.play("break; round; 600 s")
    cluster.nodes["w-0"].jobs = ("17",)
    cluster.play("3 rounds")
    assert cluster.kubernetes.changes == ["cordon m-0"]
    cluster.nodes["w-0"].jobs = ()
    cluster.round(later=TRY_AGAIN_SECONDS)
    assert cluster.kubernetes.changes == ["cordon m-0", "evict w-0"]
