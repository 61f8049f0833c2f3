"""Nodes that did not come in time, and how long they and their pool are let alone for it.

Slurm itself gives a node up that was not there after `resume_timeout`: its job goes back to the queue, and the node is
DOWN and powered down. If it were resumed at once, the scheduler would take it for the same job, again in vain. So it is
drained, with a reason that says until when, and why it did not come:

late     another node of its pool has come since it was started, or its own last pod does not go: that node alone
no node  none has come since it was started: all nodes of the pool that are off, with it

The pause doubles with each failure, and is over when somebody resumes the nodes. When all nodes that were wanted have
come, or the template is new, the pool's failures are forgotten and its pause is over: some nodes are no capacity
for a whole job. Those of a late node last until that node itself comes. Nodes that came for the same job as one that
failed are given back while that waits: a part of them is of no use to it. A restart of this program ends no pause, and
forgets what was before.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from images.common.slurm_node import LATE, NO_CAPACITY, NO_START
from images.elastic.nodes import Node, Pod, Pool

FIRST_PAUSE_SECONDS: Final = 30.0
LONGEST_PAUSES_SECONDS: Final = {LATE: 600.0, NO_CAPACITY: 600.0, NO_START: 3600.0}
"""AWS ParallelCluster's own pause after a lack of capacity (insufficient_capacity_timeout). Where machines come and no
node does, each try costs as much as a job."""

LONGEST: Final = 300  # characters of a reason, with what Kubernetes says of a pod
TOO_LATE: Final = "ResumeTimeout reached"  # Slurm's reason (24.11 and 26.05, power_save.c), behind one from before
_PAUSED: Final = re.compile(rf"({'|'.join(LONGEST_PAUSES_SECONDS)}), \d+ in vain, again at ([\dT:-]{{19}}Z)")


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
        self._tries = Counter[str]()  # failures in a row, by pool and by late node
        self._digests: dict[str, str] = {}  # of the templates, by pool
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
                del self._tries[name]
        self._before = nodes

    def judge(
        self, of: Pool, nodes: Sequence[Node], *, pods: Mapping[str, Pod], now: float, refused: Mapping[str, str]
    ) -> Closed:
        """What is to be let alone now. `nodes`: the pool's. `refused`: why Kubernetes takes no more pods of pools."""
        pool, is_new = of.name, self._digests.get(of.name, of.digest) != of.digest
        self._digests[pool] = of.digest
        off = [node for node in nodes if node.is_powered_down and not node.is_drained]
        given_up = [node for node in off if node.is_down and TOO_LATE in node.reason]
        lifted = {node.name: self._drained.pop(node.name) for node in off if node.name in self._drained}
        failed = [node for node in given_up if node.name not in lifted]
        came = max((self._came.get(node.name, 0.0) for node in nodes), default=0.0)
        all_came = came > self._failed.get(pool, 0.0) and not (given_up or any(node.is_coming for node in nodes))
        closed = self._in_force(pool, nodes, now, is_over=is_new or all_came)
        for node in failed:
            self._failed[pool] = now
            pod, why = pods.get(node.name), closed.pool
            if not why:  # else it was started before the pool paused, and is no new try
                is_late = came > self._began.get(node.name, 0.0) or (pod is not None and pod.is_leaving)
                kind = LATE if is_late else NO_CAPACITY if pod is None or pod.is_unscheduled else NO_START
                trouble = (refused.get(pool) or "it has no pod") if pod is None else pod.trouble
                why = f"{self._pause(kind, node.name if is_late else pool, now)}: {node.name}: {trouble}"[:LONGEST]
                closed.pool = "" if is_late else why
            closed.nodes[node.name] = why
        closed.nodes |= lifted
        for node in nodes:
            if not node.is_coming and node.name not in closed.nodes:
                self._began.pop(node.name, None)  # so what is remembered of nodes that wait is of those that failed
        began = min((self._began[name] for name in closed.nodes if name in self._began), default=math.inf)
        until = self._failed.get(pool, 0.0)  # who came later came for others
        closed.surplus = {node.name for node in nodes if began < self._came.get(node.name, 0.0) <= until}
        return closed

    def _in_force(self, pool: str, nodes: Sequence[Node], now: float, *, is_over: bool) -> Closed:
        """What the reasons of nodes say that still holds, as long as nobody has resumed them. `is_over`: the pool's."""
        closed = Closed()
        if is_over:
            del self._tries[pool]
        for node in nodes:
            if node.is_drained and (found := _PAUSED.match(node.reason)):
                until, is_late = datetime.fromisoformat(found[2]).timestamp(), found[1] == LATE
                # One that is too far away was written by a clock that was ahead.
                if now < until <= now + LONGEST_PAUSES_SECONDS[found[1]] and (is_late or not is_over):
                    closed.nodes[node.name] = node.reason
                    closed.pool = closed.pool if is_late else node.reason
        return closed

    def _pause(self, kind: str, of: str, now: float) -> str:
        """How the reason begins."""
        self._tries[of] += 1
        pause = min(FIRST_PAUSE_SECONDS * 2 ** min(self._tries[of] - 1, 7), LONGEST_PAUSES_SECONDS[kind])
        until = datetime.fromtimestamp(now + pause, UTC)
        return f"{kind}, {self._tries[of]} in vain, again at {until:%Y-%m-%dT%H:%M:%SZ}"
