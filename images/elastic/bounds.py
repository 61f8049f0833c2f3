"""What keeps a node that is off from being started: there was no capacity, or its pool may have no more nodes just now.

Slurm itself gives a node up that was not there after `resume_timeout`: its job goes back to the queue, and the node is
DOWN and powered down. Left so it would take no job any more, and if it were merely resumed, the scheduler would take it
at once for the same job, again in vain. So the pool pauses: its nodes that are off are drained, with a reason that says
until when, and resumed then, which makes them idle again. Nodes that are up go on. The pause doubles with each failure;
after ten of them in a row the pool is set aside until an administrator resumes its nodes.

In a window a pool is to have fewer nodes just now than it could have:

warm        more nodes are up than are to stay without jobs now. Slurm keeps as many as the pool ever keeps
            (SuspendExcNodes), and never ends these: those that have been idle for `idle_timeout` are powered down here
beyond      more nodes are up than there may be now: the others are powered down, each after its jobs, idle ones first
held back   nodes that are off, and would be too many if they were started: they are drained, with a reason that names
            the window. So jobs that need more nodes than there may be now wait, and are not refused

The reasons are the memory of it: a restart of this program finds them in Slurm.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

from images.common.elastic.view import Node, Pool, present, zone_of
from images.common.slurm_node import ELASTIC, HELD_BACK, IN_WINDOW, NO_CAPACITY, OURS, SET_ASIDE
from images.elastic.decide import LEAVES, TOO_LATE, Plan, View

FIRST_PAUSE_SECONDS: Final = 30.0
LONGEST_PAUSE_SECONDS: Final = 600.0
"""AWS ParallelCluster's own pause after a lack of capacity (insufficient_capacity_timeout)."""
MOST_FAILURES: Final = 10
"""In a row, until the pool is set aside; as AWS ParallelCluster's protected mode (protected_failure_count)."""

_SLURM_S: Final = (TOO_LATE, "Not responding", "Node unexpectedly rebooted")
"""Reasons that slurmctld gives itself, and that may still stand from before."""

_PAUSED: Final = re.compile(re.escape(NO_CAPACITY) + r", (?P<tries>\d+) in vain, again at (?P<until>\S+)")
_ASIDE: Final = f"{SET_ASIDE} after {MOST_FAILURES} starts in vain; resume its nodes when there is capacity"

BEYOND: Final = f"{ELASTIC} more than its pool may have now"
COOLED: Final = f"{ELASTIC} idle, and no longer to be kept"


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
            nodes = view.nodes_of(pool)
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


class Bounds:
    """Pools with the bounds that they have just now."""

    def __init__(self, log: Callable[[str], None]) -> None:
        self._log = log
        self._said: dict[str, str] = {}
        """Of each pool, what has been logged of it."""

    def of(self, pools: Mapping[str, Pool], now: float) -> dict[str, Pool]:
        """`now`: seconds since 1970."""
        return {name: self._of(pool, now) for name, pool in pools.items()}

    def _of(self, pool: Pool, now: float) -> Pool:
        if not pool.windows:
            return pool
        zone = zone_of(pool.timezone)
        window = None if zone is None else present(pool.windows, zone, now)
        where = f"in its window {window.name} {pool.timezone}" if window is not None else "in none of its windows"
        least, most = (pool.least, pool.most) if window is None else (window.least, window.most)
        said = f"pool {pool.name} is {where}: {least} nodes at least, {most} at most"
        if zone is None:
            said = f"pool {pool.name}: its windows are not obeyed, for this image has no time zone {pool.timezone}"
        if self._said.get(pool.name) != said:
            self._said[pool.name] = said
            self._log(said)
        return replace(pool, least=least, limit=most, window=f"{window.name} {pool.timezone}" if window else "")


def keep_within(plan: Plan, view: View, now: float) -> None:
    """Add what is to be done to a plan in which all else is decided already. `now`: seconds since 1970."""
    for pool in view.pools.values():
        # One that somebody keeps jobs from, and whose machine is gone, is nobody's node.
        nodes = [node for node in view.nodes_of(pool) if not node.is_others or node.name in view.pods]
        for node in nodes:
            # By hand, or just before it was held back: it has what was waited for.
            if (is_held_back(node) or is_set_aside(node)) and node.is_up and not node.goes_down:
                plan.change(node.name, "resume")
        if pool.windows:
            _cool(plan, pool, nodes, now)
            _beyond(plan, pool, nodes)
        names = {node.name for node in nodes}
        strangers = [pod for pod in view.pods.values() if pod.pool == pool.name and pod.name not in names]
        most = pool.most_now - (len(strangers) if pool.window else 0)
        _hold_back(plan, pool, [node for node in nodes if node.name not in view.stuck], most, now)


def _cool(plan: Plan, pool: Pool, nodes: Sequence[Node], now: float) -> None:
    there = [node for node in nodes if _stays(node)]
    idle = [
        node
        for node in there
        if node.is_up and node.is_free and not node.is_planned and 0 < node.busy_at <= now - pool.idle_timeout
    ]
    for node in idle[::-1][: max(0, len(there) - pool.least)]:
        plan.change(node.name, "power_down_asap", COOLED)


def _beyond(plan: Plan, pool: Pool, nodes: Sequence[Node]) -> None:
    told = {name for (state, _), names in plan.update.items() if state == "power_down_asap" for name in names}
    there = [node for node in nodes if _stays(node) and node.name not in told]
    # Powered down, a node would lose an administrator's drain.
    leave = [node for node in there[::-1] if node.is_up and not node.is_others]
    for node in sorted(leave, key=lambda node: not node.is_idle)[: max(0, len(there) - pool.most_now)]:
        plan.drop("resume", [node.name])
        plan.change(node.name, "power_down_asap", BEYOND)


def _hold_back(plan: Plan, pool: Pool, nodes: Sequence[Node], most: int, now: float) -> None:
    """Let no more nodes be startable than may run beside those that have a machine now; `most` with these.

    A node that has failed, or waits for its pool's pause to end, counts: it is startable then. So does one that is set
    aside, and stays so.
    """
    off = [node for node in nodes if not _has_machine(node)]
    candidates = sorted((node for node in off if is_held_back(node) or _is_startable(pool, node)), key=_turn)
    room = max(0, most - (len(nodes) - len(off)))
    reason = f"{IN_WINDOW} {pool.window}"
    beyond = (node for node in candidates[room:] if not is_set_aside(node))
    too_many = [node.name for node in beyond if not node.is_drained or node.reason != reason]
    for state in ("power_up", "drain", "resume"):
        plan.drop(state, too_many)
    for name in too_many:
        plan.change(name, "drain", reason)
    # While its pool pauses, or is set aside, the scheduler would start in vain what is freed.
    waits = reason_in_force(nodes, now)
    fails = any(node.is_down and TOO_LATE in node.reason for node in candidates)
    for node in candidates[:room]:
        if is_held_back(node) and not fails:
            plan.change(node.name, "drain" if waits else "resume", waits)


def _turn(node: Node) -> tuple[bool, ...]:
    """Who may be started before others: what is promised to somebody; but for maintenance, nothing starts there."""
    return "MAINTENANCE" in node.states, not node.is_reserved, is_held_back(node), node.is_drained


def _is_startable(pool: Pool, node: Node) -> bool:
    """Whether a job may start it, or might without a pause. One without features is in no partition yet."""
    if node.is_drained:
        return _PAUSED.match(node.reason) is not None or is_set_aside(node)
    return not (node.is_set_down or (node.is_down and others_reason(node)) or (node.is_bare and pool.features))


def _has_machine(node: Node) -> bool:
    """Whether it has one, or will have: it may be given to a job a moment before Slurm powers it up."""
    return not node.is_powered_down or "POWER_UP" in node.states or not (node.is_idle or node.is_down)


def is_held_back(node: Node) -> bool:
    """Whether it waits for a window to end, or was to leave the pool and is one of its nodes again."""
    return node.is_drained and node.reason.startswith((HELD_BACK, LEAVES))


def _stays(node: Node) -> bool:
    return not (node.is_off or node.is_down or node.goes_down)
