"""Windows of a pool: what is done where it is to have fewer nodes just now than it could have.

warm        more nodes are up than are to stay without jobs now. Slurm keeps as many as the pool ever keeps
            (SuspendExcNodes), and never ends these: those that have been idle for `idle_timeout` are powered down here
beyond      more nodes are up than there may be now: the others are powered down, each after its jobs, idle ones first
held back   nodes that are off, and would be too many if they were started: they are drained, with a reason that names
            the window. So jobs that need more nodes than there may be now wait, and are not refused

The reasons are the memory of it: which nodes are held back a restart of this program finds in Slurm.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from images.common.elastic.view import Node, Pool, present, zone_of
from images.common.slurm_node import ELASTIC, HELD_BACK, IN_WINDOW
from images.elastic.decide import LEAVES, TOO_LATE, Plan, View
from images.elastic.pauses import is_paused, is_set_aside, others_reason, reason_in_force

BEYOND: Final = f"{ELASTIC} more than its pool may have now"
COOLED: Final = f"{ELASTIC} idle, and no longer to be kept"


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
        known = [view.nodes[name] for name in view.members(pool) if name in view.nodes and view.nodes[name].is_cloud]
        # One that somebody keeps jobs from, and whose machine is gone, is nobody's node.
        nodes = [node for node in known if not node.is_others or node.name in view.pods]
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
        return is_paused(node) or is_set_aside(node)
    return not (node.is_set_down or (node.is_down and others_reason(node)) or (node.is_bare and pool.features))


def _has_machine(node: Node) -> bool:
    """Whether it has one, or will have: it may be given to a job a moment before Slurm powers it up."""
    return not node.is_powered_down or "POWER_UP" in node.states or not (node.is_idle or node.is_down)


def is_held_back(node: Node) -> bool:
    """Whether it waits for a window to end, or was to leave the pool and is one of its nodes again."""
    return node.is_drained and node.reason.startswith((HELD_BACK, LEAVES))


def _stays(node: Node) -> bool:
    return not (node.is_off or node.is_down or node.goes_down)
