"""No capacity: what becomes of nodes that were not there in time, and of their pool.

Slurm itself gives such a node up after `resume_timeout`: its job goes back to the queue, and the node is DOWN and
powered down. Left so it would take no job any more, and if it were merely resumed, the scheduler would take it at once
for the same job, again in vain. So the pool pauses: its nodes that are off are drained, with a reason that says until
when, and resumed then, which makes them idle again. Nodes that are up go on. The pause doubles with each failure; after
ten of them in a row the pool is set aside until an administrator resumes its nodes.

The reasons are the memory of it: a restart of this program finds them in Slurm.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from images.common.elastic.view import Node, Pool
from images.common.slurm_node import ELASTIC, NO_CAPACITY, OURS, SET_ASIDE
from images.elastic.decide import TOO_LATE, Plan, View

FIRST_PAUSE_SECONDS: Final = 30.0
LONGEST_PAUSE_SECONDS: Final = 600.0
"""AWS ParallelCluster's own pause after a lack of capacity (insufficient_capacity_timeout)."""
MOST_FAILURES: Final = 10
"""In a row, until the pool is set aside; as AWS ParallelCluster's protected mode (protected_failure_count)."""

_SLURM_S: Final = (TOO_LATE, "Not responding", "Node unexpectedly rebooted")
"""Reasons that slurmctld gives itself, and that may still stand from before."""

_PAUSED: Final = re.compile(re.escape(NO_CAPACITY) + r", (?P<tries>\d+) in vain, again at (?P<until>\S+)")
_ASIDE: Final = f"{SET_ASIDE} after {MOST_FAILURES} starts in vain; resume its nodes when there is capacity"


@dataclass(kw_only=True)
class Pauses:
    """What is remembered of failures from one look to the next."""

    failures: dict[str, int] = field(default_factory=dict)
    """In a row, by pool."""
    failed_at: dict[str, float] = field(default_factory=dict)
    """The latest one, in seconds since 1970."""
    _coming: dict[str, set[str]] = field(default_factory=dict)
    _came: set[str] = field(default_factory=set)
    """Pools of which a node has come since the latest failure."""

    def decide(self, plan: Plan, view: View, jobs: Mapping[str, frozenset[str]], now: float) -> None:
        """Add what is to be done to the plan. `jobs`: nodes that were started for each job. `now`: since 1970."""
        for pool in view.pools.values():
            known = [view.nodes[name] for name in view.members(pool) if name in view.nodes]
            nodes = [node for node in known if node.is_cloud]
            failed = [node for node in nodes if _has_failed(node)]
            self._watch(pool, nodes, is_failing=bool(failed))
            for node in failed:
                if reason := others_reason(node):  # Slurm has lifted this drain
                    plan.change(node.name, "drain", reason)
            failed = [node for node in failed if not others_reason(node)]
            if failed:
                self._failed(pool, failed, nodes, plan, now)
                _give_back(failed, view, jobs, plan)
            else:
                self._go_on(pool, nodes, plan, now)

    def _watch(self, pool: Pool, nodes: Iterable[Node], *, is_failing: bool) -> None:
        """Forget failures when all nodes that were wanted have come: some of them are no capacity for a whole job."""
        coming = {node.name for node in nodes if node.is_coming}
        if is_failing:
            self._came.discard(pool.name)
        elif any(node.is_up and node.name in self._coming.get(pool.name, ()) for node in nodes):
            self._came.add(pool.name)
        if not coming and pool.name in self._came:
            self._came.discard(pool.name)
            self.failures.pop(pool.name, None)
        self._coming[pool.name] = coming

    def _failed(self, pool: Pool, failed: Iterable[Node], nodes: Collection[Node], plan: Plan, now: float) -> None:
        reason = reason_in_force(nodes, now) or self._count(pool, now)
        names = {node.name for node in failed}
        names |= {node.name for node in nodes if node.is_powered_down and node.is_free}
        plan.drop("power_up", names)
        for node in nodes:
            if node.name in names:
                plan.change(node.name, "drain", reason)

    def _count(self, pool: Pool, now: float) -> str:
        """One more failure; the reason of its pause."""
        forgotten = now - self.failed_at.get(pool.name, now) > 2 * pool.resume_timeout + LONGEST_PAUSE_SECONDS
        tries = 1 if forgotten else self.failures.get(pool.name, 0) + 1
        self.failures[pool.name], self.failed_at[pool.name] = tries, now
        if tries >= MOST_FAILURES:
            return _ASIDE
        pause = min(FIRST_PAUSE_SECONDS * 2 ** (tries - 1), LONGEST_PAUSE_SECONDS)
        until = datetime.fromtimestamp(now + pause, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return f"{NO_CAPACITY}, {tries} in vain, again at {until}"

    def _go_on(self, pool: Pool, nodes: Iterable[Node], plan: Plan, now: float) -> None:
        """Lift the drains of a pause that is over."""
        waiting = {node.name: found for node in nodes if node.is_drained and (found := _PAUSED.match(node.reason))}
        for name, found in waiting.items():
            self.failures[pool.name] = max(self.failures.get(pool.name, 0), int(found["tries"]))
            if not _lasts(found, now):
                plan.change(name, "resume")
        if self.failures.get(pool.name, 0) >= MOST_FAILURES and not any(is_set_aside(node) for node in nodes):
            del self.failures[pool.name]


def reason_in_force(nodes: Iterable[Node], now: float) -> str:
    """Of a pool that is paused or set aside already: nodes that were started before fail later, and are no new try."""
    for node in nodes:
        if is_set_aside(node):
            return _ASIDE
    paused = [found for node in nodes if node.is_drained and (found := _PAUSED.match(node.reason))]
    return next((found[0] for found in paused if _lasts(found, now)), "")


def others_reason(node: Node) -> str:
    """Why somebody had drained a node that was not there in time; empty where nobody had."""
    before, divider, _ = node.reason.partition(f" : {TOO_LATE}")
    return before if divider and not before.startswith((OURS, *_SLURM_S)) else ""


def is_paused(node: Node) -> bool:
    """Whether it waits for a pause of its pool to end."""
    return node.is_drained and _PAUSED.match(node.reason) is not None


def is_set_aside(node: Node) -> bool:
    """Whether it waits for an administrator, as its whole pool."""
    return node.is_drained and node.reason.startswith(_ASIDE)


def _has_failed(node: Node) -> bool:
    return node.is_powered_down and node.is_down and not node.is_drained and TOO_LATE in node.reason


def _give_back(failed: Iterable[Node], view: View, jobs: Mapping[str, frozenset[str]], plan: Plan) -> None:
    """End the nodes that came for a job whose others did not, where no job uses them."""
    names = {node.name for node in failed}
    for started in jobs.values():
        if not started & names:
            continue
        for name in sorted(started - names):
            node = view.nodes.get(name)
            if node is not None and node.is_up and node.is_idle and not (node.goes_down or node.is_others):
                plan.change(name, "power_down", f"{ELASTIC} others of its job did not come")


def _lasts(pause: re.Match[str], now: float) -> bool:
    """Whether it is not over. One that is longer than any was written by a clock that was ahead."""
    try:
        until = datetime.strptime(pause["until"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return False
    return now < until <= now + LONGEST_PAUSE_SECONDS
