"""Which nodes get new pods next: idle ones, then those whose jobs end soonest, and never too many at once."""

from __future__ import annotations

from typing import Any

import pytest

from images.common.slurm_node import ROLLS, TOPOLOGY_REASON
from images.elastic.decide import Plan, View
from images.elastic.nodes import MAX_UNAVAILABLE, Node, Pod
from images.elastic.rolls import FixedPool, fixed_pool_of, roll

POOL = FixedPool(name="cpu", size=4, revision="new", max_unavailable="2")
IDLE, BUSY = "IDLE+DYNAMIC_NORM", "MIXED+DYNAMIC_NORM"


def node(number: int, states: str = IDLE, reason: str = "", pool: str = "cpu", by: str = "root") -> Node:
    return Node(name=f"{pool}-{number}", states=frozenset(states.split("+")), reason=reason, reason_by=by)


def pod(number: int, revision: str = "old", **more: Any) -> Pod:
    return Pod(**{"name": f"cpu-{number}", "pool": "cpu", "revision": revision, "is_ready": True, **more})


def planned(*there: Node | Pod, pool: FixedPool = POOL, **ends: float) -> tuple[list[str], list[str], list[str]]:
    """Who is drained, given back and ended, by their numbers. What is not named is idle, with an old pod."""
    usual: list[Node | Pod] = [*(node(number) for number in range(pool.size)), *(pod(n) for n in range(pool.size))]
    nodes = {one.name: one for one in (*usual, *there) if isinstance(one, Node)}
    pods = {one.name: one for one in (*usual, *there) if isinstance(one, Pod)}
    return decided(nodes, pods, {name.replace("_", "-"): end for name, end in ends.items()}, pool)


def decided(
    nodes: dict[str, Node], pods: dict[str, Pod], ends: dict[str, float], pool: FixedPool = POOL
) -> tuple[list[str], list[str], list[str]]:
    plan = Plan()
    roll(plan, View(pools={}, nodes=nodes, pods=pods, now=0.0, ends=ends), pool)
    found = (plan.todo.get(("drain", ROLLS), []), plan.todo.get(("resume", ""), []), [*plan.end])
    return tuple([name.removeprefix("cpu-") for name in names] for names in found)  # type: ignore[return-value]


def rolled(number: int, states: str = IDLE) -> Node:
    return node(number, f"{states}+DRAIN", ROLLS)


NEW = tuple(pod(number, "new") for number in range(4))


def test_busy_nodes_are_taken_where_none_is_idle_those_first_whose_jobs_end_soonest() -> None:
    busy = [node(number, BUSY) for number in range(4)]
    assert planned(*busy, cpu_1=50.0, cpu_2=90.0, cpu_3=20.0) == (["3", "1"], [], [])
    assert planned(*busy, node(2), cpu_1=50.0, cpu_3=20.0) == (["2", "3"], [], [])


def test_who_waits_for_its_jobs_already_is_not_exchanged_for_another_busy_one_but_gives_way_to_an_idle_one() -> None:
    busy = [node(number, BUSY) for number in range(4)]
    waiting = [rolled(0, BUSY), rolled(1, BUSY)]
    assert planned(*busy, *waiting, cpu_2=1.0, cpu_3=2.0) == ([], [], [])
    assert planned(*busy, *waiting, node(3), cpu_0=1.0, cpu_1=9.0) == (["3"], ["1"], [])


@pytest.mark.parametrize("reason", ["a fan", "slurmstack/health: gpu", TOPOLOGY_REASON])
def test_what_somebody_has_drained_gets_its_new_pod_when_no_job_is_on_it_and_keeps_its_drain(reason: str) -> None:
    drained: list[Node | Pod] = [node(0, f"{IDLE}+DRAIN", reason), node(1, f"{BUSY}+DRAIN", reason)]
    assert planned(*drained, *NEW[2:]) == ([], [], ["0"])
    assert planned(*drained, *NEW)[1] == [], "its drain is not ours"


@pytest.mark.parametrize(
    ("away", "room"),
    [
        ([pod(3, "new", is_ready=False)], 1),  # the new version does not start
        ([pod(3, "new"), node(3, "DOWN+DYNAMIC_NORM", "Not responding", by="slurm")], 1),
        ([pod(3, "new"), node(3, "IDLE+DYNAMIC_NORM+NOT_RESPONDING")], 1),
        ([pod(3, "new"), node(3, "DOWN+DYNAMIC_NORM", "a fan")], 2),  # an administrator has it
        ([pod(3, is_leaving=True)], 1),
        ([pod(3, "new", is_ready=False), pod(2, is_leaving=True)], 0),
        ([pod(3, "new", is_ready=False), pod(2, "new", is_ready=False), pod(1, is_leaving=True)], 0),
    ],
)
def test_whatever_is_away_counts(away: list[Node | Pod], room: int) -> None:
    assert len(planned(*away)[0]) == room


def test_a_missing_pod_counts_and_one_beyond_the_size_does_not() -> None:
    nodes, pods = {f"cpu-{n}": node(n) for n in range(6)}, {f"cpu-{n}": pod(n) for n in (0, 1, 2)}
    assert decided(nodes, pods, {})[0] == ["0"]
    beyond = {"cpu-4": pod(4, is_leaving=True), "cpu-5": pod(5)}
    assert decided(nodes, {**pods, "cpu-3": pod(3), **beyond}, {})[0] == ["0", "1"]


def test_pods_that_never_became_ready_are_replaced_at_once_all_of_them() -> None:
    """So the old version is back as soon as it is applied, whatever the limit; but not where a job may run."""
    broken: list[Node | Pod] = [pod(number, is_ready=False) for number in (0, 1, 2)]
    off = [node(number, "DOWN+DYNAMIC_NORM", "Not responding") for number in (0, 1)]
    assert planned(*broken, *off, node(2, BUSY), node(3, BUSY)) == ([], [], ["0", "1"])


def test_nodes_that_slurm_hears_have_their_turn_even_where_all_machines_seem_not_ready() -> None:
    """As for a moment after the API server was away."""
    assert planned(*(pod(number, is_ready=False) for number in range(4))) == (["0", "1"], [], [])


def test_a_pool_is_taken_of_its_stateful_set_when_kubernetes_has_seen_its_template() -> None:
    item = {
        "metadata": {"name": "cpu", "generation": 3, "annotations": {MAX_UNAVAILABLE: "2"}},
        "spec": {"replicas": 4, "updateStrategy": {"type": "OnDelete"}},
        "status": {"observedGeneration": 3, "updateRevision": "new"},
    }
    assert fixed_pool_of(item) == POOL
    assert fixed_pool_of({**item, "status": {"observedGeneration": 2, "updateRevision": "older"}}) is None
    assert fixed_pool_of({**item, "spec": {"updateStrategy": {"type": "RollingUpdate"}}}) is None
    assert fixed_pool_of({**item, "metadata": {**item["metadata"], "deletionTimestamp": "now"}}) is None
