"""What is done about each way in which a node and its pod can differ."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from images.common.slurm_node import HELD_BACK
from images.elastic.decide import GONE, LEAVES, OUTDATED, RETRY_SECONDS, SURPLUS, Plan, View, decide
from images.elastic.starts import Closed
from images.elastic.view import SLURM, Node, Pod, Pool, marked

NOW = 1_800_000_000.0
POOL = Pool(name="gpu", least=0, most=2, conf="CPUs=2 Feature=gpu", digest="new", uid="u")


def node(name: str, states: str, mark: str = POOL.mark, **more: Any) -> Node:
    given = {
        "name": name,
        "states": frozenset(states.split("+")),
        "extra": marked(mark),
        "features": frozenset({"gpu"}),
    }
    return Node(**{**given, **more})


AWAITED = "ALLOCATED+CLOUD+DYNAMIC_NORM+POWERED_DOWN"
OFF = "IDLE+CLOUD+DYNAMIC_NORM+POWERED_DOWN"
COMING = "MIXED+CLOUD+DYNAMIC_NORM+NOT_RESPONDING+POWERING_UP"
UP = "IDLE+CLOUD+DYNAMIC_NORM"
BUSY = "MIXED+CLOUD+DYNAMIC_NORM"


def pod(name: str, **more: Any) -> Pod:
    return Pod(**{"name": name, "pool": "gpu", "uid": name, "digest": "new", **more})


def view(*there: Node | Pod, pool: Pool | None = POOL) -> View:
    """What is seen; the pool's second node is off, where nothing else is said of it."""
    nodes = {item.name: item for item in there if isinstance(item, Node)}
    pods = {item.name: item for item in there if isinstance(item, Pod)}
    nodes = {"gpu-1": node("gpu-1", OFF), **nodes}
    return View(pools={"gpu": pool} if pool else {}, nodes=nodes, pods=pods, closed={"gpu": Closed()}, now=NOW)


def gone(*names: str) -> Plan:
    """No job may start what is to be deleted."""
    return Plan(delete=[*names], update={("drain", LEAVES): [*names]})


WELL = {
    "a job has it, and its pod is made already": view(node("gpu-0", AWAITED), pod("gpu-0")),
    "coming, and its pod is there": view(node("gpu-0", COMING), pod("gpu-0")),
    "goes down, and its pod leaves": view(node("gpu-0", f"{UP}+POWERING_DOWN"), pod("gpu-0", is_leaving=True)),
    "a pod of an old template waits for its jobs": view(
        node("gpu-0", f"{BUSY}+DRAIN+POWER_DOWN"), pod("gpu-0", digest="old")
    ),
    "of the StatefulSet that the pool was": view(node("gpu-0", "IDLE+DYNAMIC_NORM"), pod("gpu-0", digest="")),
    "a pod without a record leaves": view(pod("gpu-0", is_leaving=True)),
    "drained by an administrator": view(node("gpu-0", f"{OFF}+DRAIN", reason="works")),
    "set down by an administrator": view(
        node("gpu-0", "DOWN+CLOUD+DYNAMIC_NORM+POWERED_DOWN", reason="works", reason_by="root")
    ),
    "silent, and drained": view(node("gpu-0", f"{OFF}+NOT_RESPONDING+DRAIN", reason="works", reason_by="root")),
    "silent, and powered down once more": view(node("gpu-0", f"{OFF}+NOT_RESPONDING+POWER_DOWN")),
    "of an old template, and drained": view(node("gpu-0", f"{UP}+DRAIN", reason="a fan"), pod("gpu-0", digest="old")),
    "drained, and its pod is gone": view(node("gpu-0", f"{UP}+DRAIN", reason="a fan")),
    "of an old configuration, and reserved": view(node("gpu-0", f"{OFF}+RESERVED", mark="0")),
    "comes, and its pod failed just now": view(
        node("gpu-0", COMING), pod("gpu-0", has_ended=True, made_at=NOW - RETRY_SECONDS + 1)
    ),
    "bare, and to be powered down": view(node("gpu-0", f"{OFF}+POWER_DOWN", features=frozenset())),
    "another's record": view(node("gpu-0", OFF), node("cpu-0", "IDLE+DYNAMIC_NORM")),
}


def test_what_is_well_is_left_alone() -> None:
    assert [name for name, seen in WELL.items() if decide(seen) != Plan()] == []


DONE = {
    "missing": (view(), Plan(create={"gpu": ["gpu-0"]})),
    "a job has it that Slurm will power it up for": (view(node("gpu-0", AWAITED)), Plan(start={"gpu": ["gpu-0"]})),
    "its job is gone before Slurm powers it up": (
        view(node("gpu-0", OFF), pod("gpu-0")),
        Plan(end={"gpu-0": pod("gpu-0")}),
    ),
    "coming": (view(node("gpu-0", COMING)), Plan(start={"gpu": ["gpu-0"]})),
    "unbacked": (view(node("gpu-0", BUSY)), Plan(update={("down", GONE): ["gpu-0"]})),
    "unbacked and drained, with jobs": (
        view(node("gpu-0", f"{BUSY}+DRAIN", reason="a fan")),
        Plan(update={("down", "a fan"): ["gpu-0"]}),
    ),
    "unbacked and down": (
        view(node("gpu-0", "DOWN+CLOUD+DYNAMIC_NORM", reason=GONE)),
        Plan(update={("power_down", GONE): ["gpu-0"]}),
    ),
    "given up by Slurm, and off": (
        view(node("gpu-0", "DOWN+CLOUD+DYNAMIC_NORM+POWERED_DOWN", reason="Not responding", reason_by=SLURM)),
        Plan(update={("resume", ""): ["gpu-0"]}),
    ),
    "silent, and off": (view(node("gpu-0", f"{OFF}+NOT_RESPONDING")), Plan(update={("power_down", ""): ["gpu-0"]})),
    "suspended": (view(node("gpu-0", f"{UP}+POWERING_DOWN"), pod("gpu-0")), Plan(end={"gpu-0": pod("gpu-0")})),
    "a pod has ended": (
        view(node("gpu-0", BUSY), pod("gpu-0", has_ended=True)),
        Plan(end={"gpu-0": pod("gpu-0", has_ended=True)}),
    ),
    "a record that slurmd has made": (
        view(node("gpu-0", "IDLE+DYNAMIC_NORM"), pod("gpu-0")),
        Plan(end={"gpu-0": pod("gpu-0")}),
    ),
    "comes, and its pod failed before": (
        view(node("gpu-0", COMING), pod("gpu-0", has_ended=True, made_at=NOW - RETRY_SECONDS)),
        Plan(end={"gpu-0": pod("gpu-0", has_ended=True, made_at=NOW - RETRY_SECONDS)}),
    ),
    "an old template": (
        view(node("gpu-0", BUSY), pod("gpu-0", digest="old")),
        Plan(update={("power_down_asap", OUTDATED): ["gpu-0"]}),
    ),
    "an old configuration": (view(node("gpu-0", OFF, mark="0")), Plan(renew={"gpu": ["gpu-0"]})),
    "an old configuration, and Slurm does not take the node back": (
        view(
            node("gpu-0", "IDLE+CLOUD+DRAIN", mark="0", reason="gres/gpu count too low", reason_by=SLURM), pod("gpu-0")
        ),
        Plan(update={("power_down_asap", OUTDATED): ["gpu-0"]}),
    ),
    "an old configuration, held back": (
        view(node("gpu-0", f"{OFF}+DRAIN", mark="0", reason=HELD_BACK)),
        Plan(renew={"gpu": ["gpu-0"]}, update={("resume", ""): ["gpu-0"]}),
    ),
    "beyond max, off": (view(node("gpu-0", OFF), node("gpu-2", OFF)), gone("gpu-2")),
    "beyond max, and a job that names it keeps its record": (
        view(node("gpu-0", OFF), node("gpu-2", f"{OFF}+DRAIN", reason=LEAVES)),
        Plan(delete=["gpu-2"]),
    ),
    "beyond max, busy": (
        view(node("gpu-0", OFF), node("gpu-2", BUSY), pod("gpu-2")),
        Plan(update={("power_down_asap", LEAVES): ["gpu-2"]}),
    ),
    "beyond max, and jobs wait for them": (
        view(node("gpu-0", OFF), node("gpu-2", AWAITED), node("gpu-3", COMING)),
        Plan(start={"gpu": ["gpu-2", "gpu-3"]}),
    ),
    "beyond max, and drained by somebody": (
        view(node("gpu-0", OFF), node("gpu-2", f"{BUSY}+DRAIN", reason="a fan"), pod("gpu-2")),
        Plan(),
    ),
    "beyond max, drained by somebody, and its pod is gone": (
        view(node("gpu-0", OFF), node("gpu-2", f"{BUSY}+DRAIN", reason="a fan")),
        Plan(update={("down", "a fan"): ["gpu-2"]}),
    ),
    "bare": (view(node("gpu-0", OFF, features=frozenset())), Plan(place={"gpu": ["gpu-0"]})),
    "beyond max, without a record": (view(node("gpu-0", OFF), pod("gpu-7")), Plan(end={"gpu-7": pod("gpu-7")})),
    "beyond max, given up, and a job that names it keeps its record": (
        view(node("gpu-0", OFF), node("gpu-2", "DOWN+CLOUD+POWERED_DOWN", reason=GONE)),
        gone("gpu-2"),
    ),
    "beyond max, off, and drained by somebody": (
        view(node("gpu-0", OFF), node("gpu-2", f"{OFF}+DRAIN", reason="a fan")),
        Plan(),
    ),
    "beyond max, and its slurmd has made a record that Slurm does not end": (
        view(node("gpu-0", OFF), node("gpu-7", "IDLE+DYNAMIC_NORM"), pod("gpu-7")),
        Plan(end={"gpu-7": pod("gpu-7")}),
    ),
    "a pool that is gone": (view(node("gpu-0", OFF), pool=None), gone("gpu-1", "gpu-0")),
    "one is drained, and too few take jobs": (
        view(node("gpu-0", f"{UP}+DRAIN", reason="a fan"), pod("gpu-0"), pool=dataclasses.replace(POOL, least=1)),
        Plan(update={("power_up", ""): ["gpu-1"]}),
    ),
    "coming, its pod is not made yet, and it is one of those that are kept": (
        view(node("gpu-0", COMING), pool=dataclasses.replace(POOL, least=1)),
        Plan(start={"gpu": ["gpu-0"]}),
    ),
    "too few": (
        view(node("gpu-0", BUSY), pod("gpu-0"), pool=dataclasses.replace(POOL, least=2)),
        Plan(update={("power_up", ""): ["gpu-1"]}),
    ),
}


def test_what_differs_is_put_right() -> None:
    assert {name: decide(seen) for name, (seen, _) in DONE.items()} == {name: plan for name, (_, plan) in DONE.items()}


def test_who_came_in_vain_is_given_back_unless_it_is_kept_for_another_job() -> None:
    there = view(node("gpu-0", f"{UP}+PLANNED"), node("gpu-1", UP), pod("gpu-0"), pod("gpu-1"))
    seen = dataclasses.replace(there, closed={"gpu": Closed(surplus={"gpu-0", "gpu-1"})})
    assert decide(seen).update == {("power_down_asap", SURPLUS): ["gpu-1"]}


def test_nodes_that_are_asked_for_already_or_drained_are_not_powered_up() -> None:
    pool = dataclasses.replace(POOL, least=1)
    asked = view(node("gpu-0", f"{OFF}+POWER_UP"), node("gpu-1", f"{OFF}+DRAIN"), pool=pool)
    assert decide(asked) == Plan()


def test_of_many_outdated_nodes_some_at_once_are_made_anew_idle_ones_first() -> None:
    pool = dataclasses.replace(POOL, most=6, max_unavailable="2")

    def made_anew(*states: str, new: Sequence[int] = (), closed: Closed = Closed()) -> list[str]:  # noqa: B008
        nodes = [node(f"gpu-{number}", text) for number, text in enumerate(states)]
        pods = [pod(f"gpu-{number}", digest="new" if number in new else "old") for number in range(len(states))]
        off = [node(f"gpu-{number}", OFF) for number in range(len(states), 6)]
        seen = dataclasses.replace(
            view(*nodes, *pods, *off, pool=pool), ends={"gpu-1": 50.0, "gpu-2": 20.0}, closed={"gpu": closed}
        )
        return sorted(name for names in decide(seen).update.values() for name in names)

    assert made_anew(BUSY, BUSY, BUSY, BUSY) == ["gpu-1", "gpu-2"], "whose jobs end soonest"
    assert made_anew(BUSY, BUSY, BUSY, BUSY, UP, UP) == ["gpu-4", "gpu-5"]
    assert made_anew(BUSY, BUSY, f"{BUSY}+DRAIN+POWER_DOWN") == ["gpu-1"]
    assert made_anew(UP, COMING, new=[1]) == ["gpu-0"]
    assert made_anew(UP, COMING, COMING, new=[1, 2]) == [], "they do not come with their new pods, so others stay"
    assert made_anew(UP, closed=Closed(nodes={"gpu-5": "did not come"}))[0] != "gpu-0"
