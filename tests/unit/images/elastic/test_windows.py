"""Windows: which nodes may be started, which are powered down, and what else keeps a node from being started."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest

from images.common.slurm_node import PLACED, STAYS_LEAVING, TOPOLOGY_REASON
from images.elastic.decide import BEYOND, COOLED, LEAVES, View, decide
from images.elastic.starts import Starts
from images.elastic.view import Node, Pod, Pool, Window, marked

NOON = 1_800_000_000.0  # Friday, 2027-01-15 08:00 UTC
ALWAYS = Window(name="always", days=frozenset(range(7)), begin=0, end=1440, least=0, most=4)
POOL = Pool(name="gpu", least=0, most=4, conf="CPUs=2", idle_timeout=600.0, digest="new")
OFF = "IDLE+CLOUD+POWERED_DOWN"
UP = "IDLE+CLOUD"
BUSY = "MIXED+CLOUD"
COMING = "MIXED+CLOUD+POWERING_UP"
HELD = "slurmstack/elastic: held back in the window always UTC"
ASIDE = "slurmstack/elastic: set aside after 10 starts in vain; resume its nodes when there is capacity"
PAUSED = "slurmstack/elastic: no capacity, 1 in vain, again at 2027-01-15T08:00:30Z"


def held(reason: str = HELD, states: str = OFF) -> tuple[str, dict[str, Any]]:
    return f"{states}+DRAIN", {"reason": reason}


def idle(seconds: float, states: str = UP) -> tuple[str, dict[str, Any]]:
    return states, {"busy_at": NOON - seconds}


def planned(
    *nodes: str | tuple[str, dict[str, Any]],
    least: int = 0,
    most: int = 4,
    conf: str = POOL.conf,
    gone: Sequence[str] = (),
    leaving: Sequence[Pod] = (),
) -> dict[tuple[str, str], list[str]]:
    """Changes of the records of four nodes, of which those that are not off, or `gone`, have pods.

    Others are beyond `max`.
    """
    there, pods, mark = {}, {}, dataclasses.replace(POOL, conf=conf).mark
    for number, given in enumerate(nodes):
        states, more = (given, {}) if isinstance(given, str) else given
        name = f"gpu-{number}"
        usual: dict[str, Any] = {"features": frozenset({"gpu"}), "extra": marked(mark)}
        there[name] = Node(**{"name": name, "states": frozenset(states.split("+")), **usual, **more})
        if "POWERED_DOWN" not in states and name not in gone:
            pods[name] = Pod(name=name, pool="gpu", digest="new")
    pods |= {pod.name: pod for pod in leaving}
    pool = dataclasses.replace(POOL, conf=conf, windows=(dataclasses.replace(ALWAYS, least=least, most=most),)).at(NOON)
    closed = Starts(NOON - 1).judge("gpu", [*there.values()], pods, NOON)
    view = View(pools={"gpu": pool}, nodes=there, pods=pods, closed={"gpu": closed}, now=NOON)
    return decide(view).update


def test_a_drained_node_without_a_machine_takes_no_place() -> None:
    lost = (f"{UP}+DRAIN", {"reason": "GPU lost"})
    assert planned(lost, OFF, OFF, OFF, most=1) == {("drain", HELD): ["gpu-1", "gpu-2", "gpu-3"]}
    assert planned(lost, OFF, OFF, OFF, most=1, gone=["gpu-0"]) == {("drain", HELD): ["gpu-2", "gpu-3"]}


def test_warm_nodes_of_a_window_that_is_over_go_when_they_have_been_idle_for_long_enough() -> None:
    assert planned(idle(599), idle(600), idle(3600), BUSY) == {("power_down_asap", COOLED): ["gpu-2", "gpu-1"]}
    assert planned(idle(600), idle(600), idle(600), BUSY, least=2) == {("power_down_asap", COOLED): ["gpu-2", "gpu-1"]}
    assert planned(idle(600), BUSY, OFF, OFF, least=2) == {}


@pytest.mark.parametrize("more", ["DRAIN", "PLANNED", "POWERING_UP", "COMPLETING", "POWER_DOWN"])
def test_none_goes_for_being_idle_that_is_in_somebody_s_hands(more: str) -> None:
    assert planned(idle(900, f"{UP}+{more}"), OFF, OFF, OFF) == {}


def test_what_may_not_be_started_is_held_back_and_what_runs_goes_on() -> None:
    assert planned(OFF, OFF, OFF, OFF, most=1) == {("drain", HELD): ["gpu-1", "gpu-2", "gpu-3"]}
    assert planned(OFF, BUSY, OFF, OFF, most=1) == {("drain", HELD): ["gpu-0", "gpu-2", "gpu-3"]}
    assert planned(OFF, COMING, OFF, OFF, most=2) == {("drain", HELD): ["gpu-2", "gpu-3"]}
    assert planned(BUSY, held(), held(), held(), most=1) == {}


def test_nodes_beyond_the_window_s_max_leave_after_their_jobs_and_idle_ones_first() -> None:
    assert planned(BUSY, idle(1), BUSY, BUSY, most=2) == {("power_down_asap", BEYOND): ["gpu-1", "gpu-3"]}
    leaving = f"{BUSY}+DRAIN+POWER_DOWN"
    assert planned(BUSY, leaving, BUSY, leaving, most=2) == {}
    assert planned(BUSY, BUSY, (f"{UP}+DRAIN", {"reason": "a fan"}), OFF, most=1) == {
        ("power_down_asap", BEYOND): ["gpu-1", "gpu-0"],
        ("drain", HELD): ["gpu-3"],
    }, "an administrator's drain would be lost with it"


def test_what_is_held_back_is_freed_when_there_may_be_more() -> None:
    assert planned(BUSY, held(), held(), held(), most=3) == {("resume", ""): ["gpu-1", "gpu-2"]}
    assert planned(BUSY, held(), held(), held()) == {("resume", ""): ["gpu-1", "gpu-2", "gpu-3"]}


def test_an_administrator_s_drain_is_left_alone_and_needs_no_room() -> None:
    works = (f"{OFF}+DRAIN", {"reason": "works"})
    assert planned(works, OFF, OFF, held(), most=2) == {}


def test_what_waits_for_a_pause_to_end_takes_a_place_and_the_end_of_a_window_frees_nothing_that_would_fail() -> None:
    failed = ("DOWN+CLOUD+POWERED_DOWN+DRAIN", {"reason": PAUSED})
    paused = (f"{OFF}+DRAIN", {"reason": PAUSED})
    assert planned(failed, paused, held(), held(), most=1) == {("drain", PAUSED): ["gpu-2", "gpu-3"]}
    old = PAUSED.replace("08:00:30", "07:59:30")
    over = (f"{OFF}+DRAIN", {"reason": old})
    assert planned(over, over, BUSY, held(), most=2) == {("resume", ""): ["gpu-0"], ("drain", HELD): ["gpu-1"]}
    aside = (f"{OFF}+DRAIN", {"reason": ASIDE})
    assert planned(aside, held(), held(), OFF) == {("drain", ASIDE): ["gpu-1", "gpu-2"]}, "one was resumed by hand"


def test_a_node_whose_last_pod_does_not_go_waits_for_that_and_takes_no_place() -> None:
    for seconds, why in ((59, {("drain", HELD): ["gpu-3"]}), (60, {("drain", STAYS_LEAVING): ["gpu-0"]})):
        stuck = Pod(name="gpu-0", pool="gpu", digest="new", is_leaving=True, left_at=NOON - seconds)
        assert planned(OFF, OFF, OFF, OFF, most=3, leaving=[stuck]) == why
    assert planned(held(STAYS_LEAVING), OFF, OFF, OFF) == {("resume", ""): ["gpu-0"]}


@pytest.mark.parametrize(
    "gone",
    [
        ("DOWN+CLOUD+POWERED_DOWN", {"reason": "RMA", "reason_by": "root"}),
        ("DOWN+CLOUD+POWERED_DOWN", {"reason": "RMA : ResumeTimeout reached", "reason_by": "slurm"}),
    ],
)
def test_a_node_that_an_administrator_has_set_down_takes_no_place_and_keeps_his_reason(
    gone: tuple[str, dict[str, Any]],
) -> None:
    again = {("drain", "RMA"): ["gpu-0"]} if "ResumeTimeout" in gone[1]["reason"] else {}
    assert planned(gone, OFF, OFF, OFF, most=1) == {**again, ("drain", HELD): ["gpu-2", "gpu-3"]}
    assert planned(OFF, OFF, OFF, gone, most=3) == {state: ["gpu-3"] for state in again}
    assert planned(gone, BUSY, held(), held()) == {**again, ("resume", ""): ["gpu-2", "gpu-3"]}


def test_new_nodes_start_when_they_are_in_the_switch_tree_and_there_is_room() -> None:
    waits, placed = held(TOPOLOGY_REASON), held(PLACED)
    bare: tuple[str, dict[str, Any]] = (OFF, {"features": frozenset()})
    assert planned(BUSY, waits, waits, waits, most=1) == {}
    assert planned(BUSY, placed, placed, waits, most=2) == {("resume", ""): ["gpu-1"], ("drain", HELD): ["gpu-2"]}
    assert planned(BUSY, placed, placed, placed) == {("resume", ""): ["gpu-1", "gpu-2", "gpu-3"]}
    assert planned(BUSY, bare, bare, OFF, most=2, conf="CPUs=2 Feature=gpu") == {}, "they are in no partition"


def test_a_node_that_was_to_leave_the_pool_and_is_one_of_its_nodes_again_is_freed_where_there_is_room() -> None:
    left = held(LEAVES)
    assert planned(OFF, left, left, BUSY) == {("resume", ""): ["gpu-1", "gpu-2"]}
    assert planned(OFF, left, left, BUSY, most=2) == {("drain", HELD): ["gpu-1", "gpu-2"]}


def test_a_node_that_is_held_back_and_got_a_machine_all_the_same_takes_jobs_or_leaves() -> None:
    assert planned(held(states=UP), OFF, OFF, OFF) == {("resume", ""): ["gpu-0"]}
    assert planned(held(states="DOWN+CLOUD"), OFF, OFF, OFF) == {("resume", ""): ["gpu-0"]}
    assert planned(held(states=UP), BUSY, held(), held(), most=1) == {("power_down_asap", BEYOND): ["gpu-0"]}
    assert planned(held(states="IDLE+CLOUD+POWERING_UP"), held(), held(), held(), most=1) == {}
    assert planned((f"{BUSY}+DRAIN+POWER_DOWN", {"reason": LEAVES}), OFF, OFF, OFF) == {}
