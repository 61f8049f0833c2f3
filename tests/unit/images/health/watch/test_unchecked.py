"""A check that cannot tell on one node for long, while it can on the others, is that node's fault."""

from __future__ import annotations

from dataclasses import replace

from images.health.contract import Result, Status
from images.health.watch.unchecked import LONG_SECONDS, Unchecked
from images.health.watch.view import Finding, NodeView
from tests.unit.images.health.tables import table
from tests.unit.images.health.watch.views import NOW, OK, UNKNOWN

Pool = dict[str, tuple[str, Result]]
"""Name -> features, and what the check says."""


def pool(count: int, result: Result, name: str = "w", of: str = "a") -> Pool:
    """Nodes of a pool whose check `gpu-xid` says the same."""
    return {f"{name}-{number}": (of, result) for number in range(count)}


def judged(nodes: Pool, seconds: float = LONG_SECONDS, broken_at: float = -1) -> dict[str, str]:
    """Nodes that fail after so long, and why. At `broken_at` all were well for a moment."""
    unchecked, views = Unchecked(), list[NodeView]()
    for after in sorted({0.0, broken_at, seconds / 2, seconds} - {-1}):
        now = NOW + after
        views = [
            NodeView(
                name=name,
                pool=of,
                states=frozenset({"IDLE"}),
                findings={"gpu-xid": Finding(result=OK if after == broken_at else result, at=now)},
            )
            for name, (of, result) in nodes.items()
        ]
        views = unchecked.judged(views, now)
    failing = {view.name: view.findings["gpu-xid"].result for view in views}
    return {
        name: f"{result.fault}: {result.message}" for name, result in failing.items() if result.status is Status.FAIL
    }


ALONE = pool(1, UNKNOWN, "x")
FAULT = {"x-0": "node: not checked for 15 min while its peers are well: no tool"}


@table(
    "nodes, faults",
    {
        "one of a pool": ({**ALONE, **pool(9, OK)}, FAULT),
        "few of a large pool": ({**pool(2, UNKNOWN, "x"), **pool(18, OK)}, FAULT | {"x-1": FAULT["x-0"]}),
        "many": ({**pool(2, UNKNOWN, "x"), **pool(17, OK)}, {}),
        "all": (pool(9, UNKNOWN), {}),
        "without peers enough": ({**ALONE, **pool(2, OK)}, {}),
        "whose peers are another pool's": ({**ALONE, **pool(9, OK, of="b")}, {}),
    },
)
def test_who_is_at_fault(nodes: Pool, faults: dict[str, str]) -> None:
    assert judged(nodes) == faults


def test_only_when_it_lasts_without_a_break() -> None:
    nodes = {**ALONE, **pool(9, OK)}
    assert judged(nodes, LONG_SECONDS - 1) == {}
    assert judged(nodes, LONG_SECONDS, broken_at=60.0) == {}


def test_an_old_report_is_no_silence_of_a_check() -> None:
    unchecked = Unchecked()
    node = NodeView(name="x", states=frozenset({"IDLE"}), findings={"gpu-xid": Finding(result=UNKNOWN, at=NOW)})
    peers = [replace(node, name=f"w-{n}", findings={"gpu-xid": Finding(result=OK, at=NOW + 5000)}) for n in range(5)]
    for after in (0.0, 5000.0):
        views = unchecked.judged([node, *peers], NOW + after)
    assert views[0] == node
