"""Measuring a node before it takes users' jobs: one step after the other. Nothing here asks or changes anything.

A node that is drained for `new-machine`, or for a test and whose slurmd has started since, may be another machine than
before. It is kept from users by a reservation, taken out of the drain, and measured; a test that is slow runs twice.
Then the node is drained for what has failed, or given back. All that is known is the node's record, and whether there
is the reservation, so the program may be ended at any point.

Administrators win: a drain of theirs stays, and whoever deletes the reservation has the node. Tests of pairs are left
out, as the partner would be taken from users. What could not be checked counts as done: a tool that is not installed
would keep the node for ever.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from typing import Final

from images.common.health.contract import Status
from images.common.health.report import NEW_MACHINE
from images.health.node_tests.catalog import TESTS, NodeTest
from images.health.node_tests.plan import NodeView, fits

_RESERVED: Final = frozenset({"MAINTENANCE", "RESERVED"})


class Step(enum.Enum):
    """What can be done about a node."""

    WAIT = "wait"
    HOLD = "hold"
    """Keep it for the tests by a reservation."""
    OPEN = "open"
    """Forget its results, and lift the drain: the reservation still keeps it."""
    SUBMIT = "submit"
    """Start the first test that is left."""
    DRAIN = "drain"
    """For what has failed, or as before where no test can run; the next round gives it back."""
    GIVE_BACK = "give back"
    """End its tests, and the reservation."""


def step(node: NodeView | None, *, held: bool, busy: bool, tests: Iterable[NodeTest]) -> Step:
    """The next step. `held`: the node has the reservation. `busy`: a test waits or runs there."""
    if node is None:
        return Step.GIVE_BACK
    if not held:
        return Step.HOLD if _is_new(node) and not busy and node.is_in({"DRAIN"}) else Step.WAIT
    return _next(node, busy=busy, tests=list(tests))


def _next(node: NodeView, *, busy: bool, tests: Sequence[NodeTest]) -> Step:
    """Of a node that is kept for the tests."""
    if node.is_asleep or node.states & {"DRAIN", "FAIL"}:
        if busy or not _is_new(node) or not node.is_in({"DRAIN", *_RESERVED}):
            return Step.GIVE_BACK
        return Step.OPEN if node.states & _RESERVED else Step.WAIT
    if busy or not node.is_quiet:
        return Step.WAIT
    if left(node, tests):
        return Step.SUBMIT if node.is_in(_RESERVED) else Step.DRAIN
    return Step.DRAIN if failed(node, tests) else Step.GIVE_BACK


def _is_new(node: NodeView) -> bool:
    if node.own is None or "DRAIN" not in node.states:
        return False
    if node.own.check in TESTS:
        return node.started_at > (node.reason_at or node.started_at)
    return node.own.check == NEW_MACHINE


def left(node: NodeView, tests: Iterable[NodeTest]) -> list[NodeTest]:
    """Tests that are still to run."""
    alone = (test for test in tests if test.nodes == 1 and fits(test, node))
    return [test for test in alone if node.status(test) in {None, Status.WARN}]


def failed(node: NodeView, tests: Iterable[NodeTest]) -> str:
    """The test for which it is to be drained, if there is one."""
    return next((test.name for test in tests if node.status(test) is Status.FAIL), "")
