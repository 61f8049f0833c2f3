"""What a window does to a pool: who is kept, who goes, and who is not started."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest

from images.common.elastic.view import Node, Pod, Pool, Window, nodes_in
from images.common.slurm_node import PLACED, TOPOLOGY_REASON
from images.elastic.bounds import BEYOND, COOLED, Bounds, keep_within
from images.elastic.decide import LEAVES, View, decide
from images.elastic.pauses import Pauses

NOON = 1_800_000_000.0  # Friday, 2027-01-15 08:00 UTC
ALWAYS = Window(name="always", days=frozenset(range(7)), begin=0, end=1440, least=0, most=4)
POOL = Pool(name="gpu", least=0, most=4, conf="CPUs=2", resume_timeout=60.0, idle_timeout=600.0, digest="new")
OFF = "IDLE+CLOUD+POWERED_DOWN"
UP = "IDLE+CLOUD"
BUSY = "MIXED+CLOUD"
COMING = "MIXED+CLOUD+POWERING_UP"
HELD = "slurmstack/elastic: held back in the window always UTC"
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
) -> dict[tuple[str, str], list[str]]:
    """Changes of the records of four nodes, of which those that are not off, or `gone`, have pods.

    Others are beyond `max`.
    """
    there, pods, mark = {}, {}, dataclasses.replace(POOL, conf=conf).mark
    for number, given in enumerate(nodes):
        states, more = (given, {}) if isinstance(given, str) else given
        name = f"gpu-{number}"
        there[name] = Node(name=name, states=frozenset(states.split("+")), mark=mark, **more)
        if "POWERED_DOWN" not in states and name not in gone:
            pods[name] = Pod(name=name, pool="gpu", digest="new")
    pool = dataclasses.replace(POOL, conf=conf, windows=(dataclasses.replace(ALWAYS, least=least, most=most),))
    view = View(pools=Bounds(lambda _: None).of({"gpu": pool}, NOON), nodes=there, pods=pods)
    plan = decide(view)
    Pauses().decide(plan, view, {}, NOON)
    keep_within(plan, view, NOON)
    return plan.update


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


def test_nodes_of_a_pool_that_pauses_are_held_back_too_when_the_pause_would_free_them() -> None:
    failed = ("DOWN+CLOUD+POWERED_DOWN+DRAIN", {"reason": PAUSED})
    paused = (f"{OFF}+DRAIN", {"reason": PAUSED})
    assert planned(failed, paused, paused, held(), most=1) == {("drain", HELD): ["gpu-1", "gpu-2"]}
    late = ("DOWN+CLOUD+POWERED_DOWN", {"reason": "ResumeTimeout reached", "reason_by": "slurm"})
    assert planned(late, OFF, held(), held(), most=2) == {("drain", PAUSED): ["gpu-0", "gpu-1"]}


@pytest.mark.parametrize(
    "reason",
    [PAUSED, "slurmstack/elastic: set aside after 10 starts in vain; resume its nodes when there is capacity"],
)
def test_a_window_s_end_frees_no_node_of_a_pool_that_pauses_or_is_set_aside_but_has_it_wait_like_the_others(
    reason: str,
) -> None:
    waits = (f"{OFF}+DRAIN", {"reason": reason})
    assert planned(waits, held(), held(), held()) == {("drain", reason): ["gpu-1", "gpu-2", "gpu-3"]}
    assert planned(waits, BUSY, held(), held(), most=2) == {}, "it takes the second place"
    assert planned(waits, waits, OFF, held(), most=1) == (
        {("drain", HELD): ["gpu-0", "gpu-1"]} if reason == PAUSED else {}
    ), "an administrator has resumed one of them"


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
    bare = (OFF, {"is_bare": True})
    assert planned(BUSY, waits, waits, waits, most=1) == {}
    assert planned(BUSY, placed, placed, waits, most=2) == {("resume", ""): ["gpu-1"], ("drain", HELD): ["gpu-2"]}
    assert planned(BUSY, placed, placed, placed) == {("resume", ""): ["gpu-1", "gpu-2", "gpu-3"]}
    assert planned(BUSY, bare, bare, OFF, most=2, conf="CPUs=2 Feature=gpu") == {}, "they are in no partition"
    assert nodes_in(f"NodeName=gpu-0 State={OFF}+DRAIN Reason={TOPOLOGY_REASON} [a@b]")["gpu-0"].is_moving


def test_a_node_that_was_to_leave_the_pool_and_is_one_of_its_nodes_again_is_freed_where_there_is_room() -> None:
    left = held(LEAVES)
    assert planned(OFF, left, left, BUSY) == {("resume", ""): ["gpu-1", "gpu-2"]}
    assert planned(OFF, left, left, BUSY, most=2) == {("drain", HELD): ["gpu-1", "gpu-2"]}


def test_a_node_that_is_held_back_and_got_a_machine_all_the_same_takes_jobs_or_leaves() -> None:
    assert planned(held(states=UP), OFF, OFF, OFF) == {("resume", ""): ["gpu-0"]}
    assert planned(held(states=UP), BUSY, held(), held(), most=1) == {("power_down_asap", BEYOND): ["gpu-0"]}
    assert planned(held(states="IDLE+CLOUD+POWERING_UP"), held(), held(), held(), most=1) == {}
    assert planned((f"{BUSY}+DRAIN+POWER_DOWN", {"reason": LEAVES}), OFF, OFF, OFF) == {}


def test_what_is_reserved_comes_first_and_what_is_under_maintenance_last() -> None:
    reserved = f"{OFF}+RESERVED"
    assert planned(OFF, OFF, reserved, OFF, most=2) == {("drain", HELD): ["gpu-1", "gpu-3"]}
    assert planned(OFF, OFF, held(), held(states=reserved), most=2) == {
        ("resume", ""): ["gpu-3"],
        ("drain", HELD): ["gpu-1"],
    }
    assert planned(f"{reserved}+MAINTENANCE", OFF, held(), held(), most=1) == {("drain", HELD): ["gpu-0"]}


def test_the_log_tells_once_in_which_window_a_pool_is_and_of_a_zone_that_is_missing() -> None:
    log: list[str] = []
    bounds = Bounds(log.append)
    morning = dataclasses.replace(ALWAYS, name="mon-fri 08:00-19:00", begin=480, end=1140, least=3, most=3)
    pool = dataclasses.replace(POOL, windows=(morning,))
    for at in (NOON - 1, NOON, NOON + 3600):
        found = bounds.of({"gpu": pool}, at)["gpu"]
    assert (found.least, found.most, found.most_now, found.window) == (3, 4, 3, "mon-fri 08:00-19:00 UTC")
    assert log == [
        "pool gpu is in none of its windows: 0 nodes at least, 4 at most",
        "pool gpu is in its window mon-fri 08:00-19:00 UTC: 3 nodes at least, 3 at most",
    ]
    lost = bounds.of({"gpu": dataclasses.replace(pool, timezone="Europe/Nowhere")}, NOON)["gpu"]
    assert (lost.least, lost.most_now) == (0, 4)
    assert log[2] == "pool gpu: its windows are not obeyed, for this image has no time zone Europe/Nowhere"
