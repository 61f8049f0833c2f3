"""A drain that follows close upon another one for the same check stands for a while."""

from __future__ import annotations

from dataclasses import replace

from images.common.health.contract import Result
from images.health.watch.flapping import AGAIN_SECONDS, HOLD_SECONDS, Flapping
from images.health.watch.view import NodeView
from tests.unit.images.health.tables import table
from tests.unit.images.health.watch.views import NOW, OK, WARN, failed, view

FULL = "health/disks [node]: full"
LAST = view("w-0", "DRAIN", reason=FULL)
"""The drain before, which was lifted an hour ago or less."""


def drained(ago: float, result: Result = OK, reason: str = FULL) -> NodeView:
    return view("w-0", "IDLE", "DRAIN", reason=reason, drained_ago=ago, disks=result, kubernetes=result)


@table(
    "now, lifted_ago, held",
    {
        "the first drain is lifted at once": (drained(30), None, False),
        "the next one stands for five minutes": (drained(HOLD_SECONDS - 1), HOLD_SECONDS + 60, True),
        "and no longer": (drained(HOLD_SECONDS), HOLD_SECONDS + 60, False),
        "an hour later it is the first again": (drained(30), AGAIN_SECONDS + 30, False),
        "another check has not failed before": (drained(30, reason="health/dns [node]: x"), 60, False),
        "people cordon as often as they like": (drained(30, reason="health/kubernetes [node]: x"), 60, False),
        "a node that is not drained": (view("w-0", disks=OK), 60, False),
        "a warning right after slurmd has started": (replace(drained(30, WARN), started_at=NOW - 200), None, True),
        "a warning later": (replace(drained(30, WARN), started_at=NOW - HOLD_SECONDS), None, False),
        "a failure lifts nothing anyway": (drained(30, failed()), None, False),
    },
)
def test_a_drain_stands_where_another_one_was_lifted_of_late(
    now: NodeView, lifted_ago: float | None, held: bool
) -> None:
    flapping = Flapping()
    if lifted_ago is not None:
        flapping.lifted(LAST, NOW - lifted_ago)
        if now.reason.startswith("health/kubernetes"):
            flapping.lifted(replace(LAST, reason=now.reason), NOW - lifted_ago)
    assert flapping.holds(now, NOW) is held
