"""One look after the other at the pods of fixed pools while some of them are to be replaced (rolls.py)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

from images.common.elastic.view import Node, Pod
from images.common.slurm_records import compress
from images.common.wait import Clock, Reminder
from images.elastic.nodes import Nodes, SlurmError
from images.elastic.pods import Pods
from images.elastic.rolls import FixedPool, Roll, drained_for_it, is_outdated, roll
from images.elastic.wake import SHARE, Wake

QUICK_SECONDS: Final = 0.5
"""Between two looks when something was done."""
ROLLING_SECONDS: Final = 2.0
"""While nodes are waited for."""
USUAL_SECONDS: Final = 60.0
"""While all pods are new: then only Kubernetes is looked at, and its events have us look at once."""


class RollRounds:
    """Looks, decides and does. One thread."""

    def __init__(
        self,
        *,
        nodes: Nodes,
        pods: Pods,
        pools: Callable[[], Mapping[str, FixedPool | None]],
        there: Callable[[], Mapping[str, Pod]],
        synced: Callable[[], bool],
        log: Callable[[str], None],
    ) -> None:
        self._nodes, self._pods, self._pools, self._there, self._synced = nodes, pods, pools, there, synced
        self._log = log
        self._owes = True
        """Whether nodes may be drained for it, of which only Slurm knows."""
        self._said: dict[str, str] = {}

    def run(self, wake: Wake) -> None:
        """Look for ever."""
        clock = Clock()
        reminder = Reminder(self._log, clock)
        while True:
            wake.forget()
            try:
                pause = self.look()
                reminder = Reminder(self._log, clock)
            except SlurmError as error:
                reminder.waiting(f"slurmctld: {error}")
                pause = ROLLING_SECONDS
            wake.wait(pause, QUICK_SECONDS)

    def look(self) -> float:
        """One look; seconds until the next one. Raises SlurmError."""
        if not self._synced():
            return ROLLING_SECONDS
        pools = {name: pool for name, pool in self._pools().items() if pool is not None}
        pods = self._there()
        rolling = [pool for pool in pools.values() if _is_rolling(pool, pods)]
        if not rolling and not self._owes:
            self._tell({})
            return USUAL_SECONDS
        started = time.monotonic()
        nodes = self._nodes.read()
        ends = self._nodes.ends() if rolling else {}
        plans = {pool.name: roll(pool, nodes, pods, ends) for pool in pools.values()}
        self._owes = any(drained_for_it(node) for node in nodes.values())
        self._tell({pool.name: _told(pool, plans[pool.name], nodes) for pool in rolling})
        acts = [self._do(plan) for plan in plans.values()]
        pause = QUICK_SECONDS if any(acts) else ROLLING_SECONDS
        return max(pause, SHARE * (time.monotonic() - started))

    def _do(self, plan: Roll) -> bool:
        if plan.resume:
            self._nodes.update(plan.resume, "resume", "")
        if plan.drain:
            self._nodes.roll(plan.drain)
            self._owes = True
        if plan.end and (refused := self._pods.end(plan.end)):
            self._log(refused)
        return bool(plan.resume or plan.drain or plan.end)

    def _tell(self, said: dict[str, str]) -> None:
        for name, text in said.items():
            if self._said.get(name) != text:
                self._log(text)
        for name in self._said.keys() - said.keys():
            self._log(f"pool {name}: no node has an old pod any more")
        self._said = said


def _is_rolling(pool: FixedPool, pods: Mapping[str, Pod]) -> bool:
    return any(is_outdated(pool, pods[name]) for name in pool.nodes() if name in pods)


def _told(pool: FixedPool, plan: Roll, nodes: Mapping[str, Node]) -> str:
    """How far it is, and what it waits for."""
    busy = [name for name in pool.nodes() if name in nodes and drained_for_it(nodes[name]) and not nodes[name].is_idle]
    waits = {
        "failing": ("not ready with their new pods", plan.failing),
        "away": ("away", plan.away),
        "busy": ("waiting for their jobs", busy),
    }
    more = "".join(f"; {what}: {compress(names)}" for what, names in waits.values() if names)
    return f"pool {pool.name}: {plan.old} of {pool.size} nodes still to get their new pods{more}"
