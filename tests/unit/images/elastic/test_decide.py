"""What is done about each way in which a node and its pod can differ, and about pauses.

Nodes are written as `STATES WORDS: reason`, in the order of their numbers. Words: `pod` has one of the template of now,
`old` of an older one (`old-long`: for long, `old-ready`: its slurmd runs, too), `set` of a StatefulSet, `leaving`,
`stuck` (for a minute), `failed` (just now), `failed-long`; `bare` has no features, `marked` is of older resources,
`by-slurm`.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from images.common.slurm_node import PLACED, STAYS_LEAVING, TOPOLOGY_REASON
from images.common.slurm_records import MARK, compress
from images.elastic.decide import (  # fmt: skip
    GONE,
    LEAVES,
    OUTDATED,
    RETRY_SECONDS,
    STUCK_SECONDS,
    SURPLUS,
    View,
    decide,
)
from images.elastic.nodes import SLURM, Node, Pod, Pool
from images.elastic.starts import Closed, Starts

NOON = 1_800_000_000.0  # Friday, 2027-01-15 08:00 UTC
POOL = Pool(name="gpu", least=0, most=4, conf="CPUs=2 Feature=gpu", mark="now", digest="new", uid="u")

AWAITED, OFF = "ALLOCATED+CLOUD+POWERED_DOWN", "IDLE+CLOUD+POWERED_DOWN"
COMING, UP, BUSY = "MIXED+CLOUD+NOT_RESPONDING+POWERING_UP", "IDLE+CLOUD", "MIXED+CLOUD"
GIVEN_UP = "DOWN+CLOUD+POWERED_DOWN"
HELD = STAYS_LEAVING
PAUSED = "slurmstack/elastic: no capacity, 1 in vain, again at 2027-01-15T08:00:30Z"

PODS: dict[str, dict[str, Any]] = {
    "pod": {},
    "old": {"digest": "old", "made_at": NOON - RETRY_SECONDS + 1},
    "old-long": {"digest": "old"},
    "old-ready": {"digest": "old", "is_ready": True},
    "set": {"digest": ""},
    "leaving": {"is_leaving": True, "left_at": NOON - STUCK_SECONDS + 1},
    "stuck": {"is_leaving": True, "left_at": NOON - STUCK_SECONDS},
    "failed": {"has_ended": True, "made_at": NOON - RETRY_SECONDS + 1},
    "failed-long": {"has_ended": True, "made_at": NOON - RETRY_SECONDS},
}


def read(name: str, written: str, pool: Pool) -> tuple[Node | None, Pod | None]:
    """A node and its pod."""
    front, _, reason = written.partition(": ")
    states, *words = front.split()
    pods = [Pod(**{"name": name, "pool": "gpu", "digest": "new", **PODS[word]}) for word in words if word in PODS]
    node = Node(
        name=name,
        states=frozenset(states.split("+")),
        extra=json.dumps({MARK: "0" if "marked" in words else pool.mark}),
        features=frozenset({"gpu"} if "bare" not in words else ()),
        reason=reason,
        reason_by=SLURM if "by-slurm" in words else "root" if reason else "",
    )
    return (node if states != "NONE" else None), (pods[0] if pods else None)


def seen(*written: str, closed: Closed | None = None, ends: dict[str, float] | None = None, **changes: Any) -> View:
    """Nodes of a pool."""
    pool = dataclasses.replace(POOL, **{"most": max(2, len(written)), **changes})
    found = {f"gpu-{number}": read(f"gpu-{number}", text, pool) for number, text in enumerate(written)}
    nodes = {name: node for name, (node, _) in found.items() if node is not None}
    pods = {name: pod for name, (_, pod) in found.items() if pod is not None}
    why = closed or Starts().judge(pool, [*nodes.values()], pods=pods, now=NOON, refused={})
    return View(pools={"gpu": pool}, nodes=nodes, pods=pods, now=NOON, closed={"gpu": why}, ends=ends or {})


def done(view: View) -> list[str]:
    """The plan in lines."""
    plan = decide(view)
    told = [f"{what} {compress(names)}: {of}".removesuffix(": ") for (what, of), names in plan.todo.items()]
    told += [f"end {compress(plan.end)}"] if plan.end else []
    return sorted(line.removesuffix(": gpu") for line in told)


WELL = {
    "a job has it, and its pod is made already": f"{AWAITED} pod",
    "coming, and its pod is there": f"{COMING} pod",
    "coming, of an old template, and about to register": f"{COMING} old-ready",
    "coming, of an old template, and may register at any moment": f"{COMING} old",
    "goes down, and its pod leaves": f"{UP}+POWERING_DOWN leaving",
    "a pod of an old template waits for its jobs": f"{BUSY}+DRAIN+POWER_DOWN old",
    "of the StatefulSet that the pool was": "IDLE+DYNAMIC_NORM set",
    "a pod without a record leaves": "NONE leaving",
    "drained by an administrator": f"{OFF}+DRAIN: works",
    "set down by an administrator": f"{GIVEN_UP}: works",
    "silent, and drained": f"{OFF}+NOT_RESPONDING+DRAIN: works",
    "silent, and powered down once more": f"{OFF}+NOT_RESPONDING+POWER_DOWN",
    "of an old template, and drained": f"{UP}+DRAIN old: a fan",
    "drained, and its pod is gone": f"{UP}+DRAIN: a fan",
    "of an old configuration, and reserved": f"{OFF}+RESERVED marked",
    "comes, and its pod failed just now": f"{COMING} failed",
    "bare, and to be powered down": f"{OFF}+POWER_DOWN bare",
}


def test_what_is_well_is_left_alone() -> None:
    assert [name for name, written in WELL.items() if done(seen(written, OFF))] == []


DONE = {
    "missing": ("NONE", "create gpu-0"),
    "a job has it that Slurm will power it up for": (AWAITED, "start gpu-0"),
    "coming, of an old template": (f"{COMING} old-long", "end gpu-0"),
    "its job is gone before Slurm powers it up": (f"{OFF} pod", "end gpu-0"),
    "coming": (COMING, "start gpu-0"),
    "unbacked": (BUSY, f"down gpu-0: {GONE}"),
    "unbacked and drained, with jobs": (f"{BUSY}+DRAIN: a fan", "down gpu-0: a fan"),
    "unbacked and down": (f"DOWN+CLOUD: {GONE}", f"power_down gpu-0: {GONE}"),
    "given up by Slurm, and off": (f"{GIVEN_UP} by-slurm: Not responding", "resume gpu-0"),
    "silent, and off": (f"{OFF}+NOT_RESPONDING", "power_down gpu-0"),
    "suspended": (f"{UP}+POWERING_DOWN pod", "end gpu-0"),
    "a pod has ended": (f"{BUSY} failed", "end gpu-0"),
    "a record that slurmd has made": ("IDLE+DYNAMIC_NORM pod", "end gpu-0"),
    "comes, and its pod failed before": (f"{COMING} failed-long", "end gpu-0"),
    "an old template": (f"{BUSY} old", f"power_down_asap gpu-0: {OUTDATED}"),
    "an old configuration": (f"{OFF} marked", "renew gpu-0"),
    "an old configuration, and Slurm does not take the node back": (
        "IDLE+CLOUD+DRAIN marked pod by-slurm: gres/gpu count too low", f"power_down_asap gpu-0: {OUTDATED}"
    ),
    "bare": (f"{OFF} bare", "place gpu-0"),
    "its last pod leaves": (f"{OFF} leaving", ""),
    "its last pod does not go": (f"{OFF} stuck", f"drain gpu-0: {STAYS_LEAVING}"),
    "its last pod has gone": (f"{OFF}+DRAIN: {STAYS_LEAVING}", "resume gpu-0"),
    "it was to leave the pool": (f"{OFF}+DRAIN: {LEAVES}", "resume gpu-0"),
    "held back, and got a machine all the same": (f"{UP}+DRAIN pod: {HELD}", "resume gpu-0"),
    "held back and down, and got a machine all the same": (f"DOWN+CLOUD+DRAIN pod: {HELD}", "resume gpu-0"),
}  # fmt: skip


def test_what_differs_is_put_right() -> None:
    wanted = {name: [plan] if plan else [] for name, (_, plan) in DONE.items()}
    assert {name: done(seen(written, OFF)) for name, (written, _) in DONE.items()} == wanted
    assert done(seen(f"{OFF}+DRAIN marked: {STAYS_LEAVING}", OFF)) == ["renew gpu-0", "resume gpu-0"]


@pytest.mark.parametrize(
    ("written", "plan"),
    [
        (OFF, ["delete gpu-1", f"drain gpu-1: {LEAVES}"]),  # no job may start what is to be deleted
        (f"{GIVEN_UP} by-slurm: {GONE}", ["delete gpu-1", f"drain gpu-1: {LEAVES}"]),
        (f"{OFF}+DRAIN: {LEAVES}", ["delete gpu-1"]),  # a job that names it keeps its record
        (f"{BUSY} pod", [f"power_down_asap gpu-1: {LEAVES}"]),
        (f"{BUSY}+DRAIN+POWER_DOWN pod: {LEAVES}", []),
        (AWAITED, ["start gpu-1"]),  # a job waits for it
        (COMING, ["start gpu-1"]),
        (f"{BUSY}+DRAIN pod: a fan", []),  # drained by somebody
        (f"{BUSY}+DRAIN: a fan", ["down gpu-1: a fan"]),
        (f"{OFF}+DRAIN: a fan", []),
        ("NONE pod", ["end gpu-1"]),
        ("IDLE+DYNAMIC_NORM pod", ["end gpu-1"]),  # a record of slurmd's
    ],
)  # fmt: skip
def test_what_the_pool_has_no_room_for_leaves_after_its_jobs(written: str, plan: list[str]) -> None:
    assert done(seen(OFF, written, most=1)) == plan


def test_all_of_a_pool_that_is_gone_leave_and_nobody_else_does() -> None:
    view, (fixed, _) = seen(OFF, f"{BUSY} pod"), read("cpu-0", "IDLE+DYNAMIC_NORM", POOL)
    assert fixed is not None
    gone = dataclasses.replace(view, pools={}, nodes={**view.nodes, "cpu-0": fixed})
    assert done(gone) == ["delete gpu-0", f"drain gpu-0: {LEAVES}", f"power_down_asap gpu-1: {LEAVES}"]
    # A pod that has not come yet goes at once, with its template: its job has to be given back.
    assert done(dataclasses.replace(seen(COMING), pools={})) == [f"down gpu-0: {GONE}"]


def test_as_many_as_are_kept_are_powered_up_but_none_that_is_asked_for_already_or_drained() -> None:
    assert done(seen(f"{UP}+DRAIN pod: a fan", OFF, least=1)) == ["power_up gpu-1"]
    assert done(seen(f"{BUSY} pod", OFF, least=2)) == ["power_up gpu-1"]
    assert done(seen(COMING, OFF, least=1)) == ["start gpu-0"], "its pod is not made yet, and it counts"
    assert done(seen(f"{OFF}+POWER_UP", f"{OFF}+DRAIN: works", least=1)) == []
    assert done(seen(f"{OFF}+RESERVED", OFF, least=1)) == ["power_up gpu-1"], "who is of use to ordinary jobs"
    assert done(seen(f"{UP}+RESERVED pod", OFF, least=1)) == [], "Slurm keeps it, and would end another one"


def test_who_came_in_vain_is_given_back_unless_it_is_kept_for_another_job() -> None:
    vain, gone = Closed(surplus={"gpu-0", "gpu-1"}), [f"power_down_asap gpu-1: {SURPLUS}"]
    assert done(seen(f"{UP}+PLANNED pod", f"{UP} pod", closed=vain)) == gone
    for kept in (UP, f"{UP}+RESERVED"):
        assert done(seen(f"{kept} pod", f"{UP} pod", closed=vain, least=1)) == gone, "one is kept"


def test_of_many_outdated_nodes_some_at_once_are_made_anew_idle_ones_first() -> None:
    def made_anew(*written: str, closed: Closed | None = None) -> list[str]:
        pods = [text if " " in text else f"{text} old" for text in written]
        ends = {"gpu-1": 50.0, "gpu-2": 20.0}
        return done(seen(*pods, ends=ends, closed=closed, max_unavailable="2"))

    assert made_anew(BUSY, BUSY, BUSY, BUSY) == [f"power_down_asap gpu-[1-2]: {OUTDATED}"], "whose jobs end soonest"
    assert made_anew(BUSY, BUSY, BUSY, BUSY, UP, UP) == [f"power_down_asap gpu-[4-5]: {OUTDATED}"]
    assert made_anew(BUSY, BUSY, f"{BUSY}+DRAIN+POWER_DOWN") == [f"power_down_asap gpu-1: {OUTDATED}"]
    assert made_anew(UP, f"{COMING} pod") == [f"power_down_asap gpu-0: {OUTDATED}"]
    assert made_anew(UP, f"{COMING} pod", f"{COMING} pod") == [], "they do not come with their new pods, so others stay"
    assert made_anew(UP, f"{OFF}+DRAIN x: late", closed=Closed(nodes={"gpu-1": "late"})) == [], "nor do these"


def test_while_a_pool_waits_no_node_of_it_is_started_but_somebody_s_drain_keeps_its_reason() -> None:
    paused, over = f"{OFF}+DRAIN: {PAUSED}", f"{OFF}+DRAIN: {PAUSED.replace('08:00:30', '07:59:30')}"
    held = f"{OFF}+DRAIN: {STAYS_LEAVING}"
    assert done(seen(f"{GIVEN_UP}+DRAIN: {PAUSED}", paused, held, OFF)) == [f"drain gpu-[2-3]: {PAUSED}"]
    assert done(seen(over, over)) == ["resume gpu-[0-1]"]
    assert done(seen(paused, f"{OFF}+DRAIN: works", f"{GIVEN_UP}: RMA")) == []


def test_new_nodes_start_when_they_are_in_the_switch_tree() -> None:
    waits, placed = f"{OFF}+DRAIN: {TOPOLOGY_REASON}", f"{OFF}+DRAIN: {PLACED}"
    assert done(seen(waits, placed, f"{OFF} bare")) == ["place gpu-2", "resume gpu-1"]
