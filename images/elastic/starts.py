"""Nodes that did not come in time, and how long they and their pool are let alone for it.

Slurm itself gives a node up that was not there after `resume_timeout`: its job goes back to the queue, and the node is
DOWN and powered down. Left so it would take no job any more, and if it were merely resumed, the scheduler would take it
at once for the same job, again in vain. So it is drained, with a reason that says until when, and why it did not come:

late        another node of its pool has come since it was started, or its own last pod does not go: that node alone
no node     none has come since it was started: all nodes of the pool that are off, with it
set aside   the same ten times in a row: until an administrator resumes them

The pause doubles with each failure, and is over when somebody resumes the nodes. When all nodes that were wanted have
come, the pool's failures are forgotten and its pause is over: some of them are no capacity for a whole job. Those of a
late node last until that node itself comes. Nodes that came for the same job as one that failed are given back while
that waits: a part of them is of no use to it. The reasons are the memory of it where this program is restarted.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from images.common.slurm_node import LATE, NO_CAPACITY, NO_START, SET_ASIDE
from images.elastic.view import Node, Pod

FIRST_PAUSE_SECONDS: Final = 30.0
LONGEST_PAUSE_SECONDS: Final = 600.0
"""AWS ParallelCluster's own pause after a lack of capacity (insufficient_capacity_timeout)."""
MOST_FAILURES: Final = 10
"""In a row, until the pool is set aside; as AWS ParallelCluster's protected mode (protected_failure_count)."""

TOO_LATE: Final = "ResumeTimeout reached"
"""Slurm's reason for a node that was not there in time (24.11 and 26.05, power_save.c), behind one from before."""

_PAUSED: Final = re.compile(rf"({LATE}|{NO_CAPACITY}|{NO_START}), (\d+) in vain, again at ([\dT:-]{{19}}Z)")


@dataclass(kw_only=True)
class Closed:
    """What starts that failed mean for a pool now."""

    nodes: dict[str, str] = field(default_factory=dict)
    """Nodes that are to stay off -> why; also of what somebody had drained, before Slurm lifted that with the power."""
    pool: str = ""  # why all of its nodes that are off are to stay so
    surplus: set[str] = field(default_factory=set)  # nodes that came for jobs whose other nodes did not


class Starts:
    """What is remembered of starts from one look to the next. Times are seconds since 1970."""

    def __init__(self) -> None:
        self._before: Mapping[str, Node] = {}
        self._began: dict[str, float] = {}
        self._came: dict[str, float] = {}
        self._failed: dict[str, float] = {}  # the latest failure, by pool
        self._tries: dict[str, int] = {}  # in a row, by pool
        self._late: dict[str, int] = {}  # in a row, by node
        self._drained: dict[str, str] = {}  # by somebody, while Slurm or we started or ended the node -> why

    def see(self, nodes: Mapping[str, Node], now: float) -> None:
        """Take note of who is coming, who has come, and who is drained on the way up or down."""
        for name, node in nodes.items():
            before = self._before.get(name, node)
            if node.is_others and (node.is_coming or (node.goes_down and before.goes_down and not before.is_others)):
                self._drained[name] = node.reason
            elif not (node.is_off or node.goes_down):
                self._drained.pop(name, None)
            if node.is_coming and not (before.is_coming and name in self._began):
                self._began[name] = now
                self._came.pop(name, None)
            elif node.is_up and before.is_coming:
                self._came[name] = now
                self._late.pop(name, None)
        self._before = nodes

    def judge(
        self, pool: str, nodes: Sequence[Node], pods: Mapping[str, Pod], now: float, *, refused: str = ""
    ) -> Closed:
        """What is to be let alone now. `nodes`: the pool's. `refused`: why Kubernetes takes no more pods of it."""
        closed = self._in_force(pool, nodes, now)
        off = [node.name for node in nodes if node.is_powered_down and not node.is_drained]
        lifted = {name: self._drained.pop(name) for name in off if name in self._drained}
        failed = [node for node in nodes if has_failed(node) and node.name not in lifted]
        came = max((self._came.get(node.name, 0.0) for node in nodes), default=0.0)
        if failed:
            self._failed[pool] = now
        for node in failed if not closed.pool else ():  # else they were started before it paused, and are no new try
            pod = pods.get(node.name)
            why = refused or "it has no pod"
            if pod is not None:
                why = "its last pod has not gone" if pod.is_leaving else pod.trouble or "its slurmd has not registered"
            if came > self._began.get(node.name, 0.0) or (pod is not None and pod.is_leaving):
                self._late[node.name] = tries = self._late.get(node.name, 0) + 1
                closed.nodes[node.name] = _pause(LATE, tries, now, why)
            else:
                self._tries[pool] = tries = self._tries.get(pool, 0) + 1
                kind = NO_CAPACITY if pod is None or pod.is_unscheduled else NO_START
                closed.pool = _pause(kind, tries, now, f"{node.name}: {why}")
                break
        closed.nodes = {**{node.name: closed.pool for node in failed if closed.pool}, **closed.nodes, **lifted}
        for node in nodes:
            if not node.is_coming and node.name not in closed.nodes:
                self._began.pop(node.name, None)  # so what is remembered of nodes that wait is of those that failed
        began = min((self._began[name] for name in closed.nodes if name in self._began), default=math.inf)
        until = self._failed.get(pool, 0.0)  # who came later came for others
        closed.surplus = {node.name for node in nodes if began < self._came.get(node.name, 0.0) <= until}
        return closed

    def _in_force(self, pool: str, nodes: Sequence[Node], now: float) -> Closed:
        """What the reasons of nodes say that still holds, as long as nobody has resumed them."""
        closed, drained = Closed(), [node for node in nodes if node.is_drained]
        aside = {node.name: node.reason for node in drained if node.reason.startswith(SET_ASIDE)}
        paused = [(node.name, found) for node in drained if (found := _PAUSED.match(node.reason))]
        for name, found in paused:
            tries, of = (self._late, name) if found[1] == LATE else (self._tries, pool)
            tries[of] = max(tries.get(of, 0), int(found[2]))
        has_come = any(self._came.get(node.name, 0.0) > self._failed.get(pool, 0.0) for node in nodes)
        has_come = has_come and not any(node.is_coming or has_failed(node) for node in nodes)
        if has_come or (not aside and self._tries.get(pool, 0) >= MOST_FAILURES):  # somebody has resumed them
            self._tries.pop(pool, None)
        for name, found in paused:
            until = datetime.fromisoformat(found[3]).timestamp()  # one beyond any was written by a clock that was ahead
            if now < until <= now + LONGEST_PAUSE_SECONDS and (found[1] == LATE or not has_come):
                closed.nodes[name] = found.string
                closed.pool = closed.pool if found[1] == LATE else found.string
        closed.nodes |= {} if has_come else aside
        return closed


def has_failed(node: Node) -> bool:
    """Whether Slurm has just given it up, as it was not there in time."""
    return node.is_powered_down and node.is_down and not node.is_drained and TOO_LATE in node.reason


def _pause(kind: str, tries: int, now: float, why: str) -> str:
    """Its reason."""
    if kind != LATE and tries >= MOST_FAILURES:
        return f"{SET_ASIDE} after {MOST_FAILURES} starts in vain; resume its nodes when there is capacity: {why}"
    until = now + min(FIRST_PAUSE_SECONDS * 2 ** (min(tries, MOST_FAILURES) - 1), LONGEST_PAUSE_SECONDS)
    return f"{kind}, {tries} in vain, again at {datetime.fromtimestamp(until, UTC):%Y-%m-%dT%H:%M:%SZ}: {why}"
