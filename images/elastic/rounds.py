"""One look after the other at elastic pools, and what is done then."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from images.elastic.decide import Plan, View, decide
from images.elastic.nodes import Nodes, nodes_of_jobs
from images.elastic.pauses import Pauses
from images.elastic.pods import Pods
from images.elastic.view import Node, Pod, Pool

QUICK_SECONDS: Final = 0.25
"""Between two looks while nodes come: a job waits for the one that sees them."""
USUAL_SECONDS: Final = 10.0
"""While nothing happens. Who starts or ends nodes has us look at once."""
SHARE: Final = 4.0
"""A look that takes long, with thousands of nodes, is followed by a pause of this many times its length."""
LONGEST_REFUSAL_SECONDS: Final = 30.0
"""Between two tries to make pods that Kubernetes refuses (a quota, an admission)."""
ASKED_SECONDS: Final = 5.0
"""Between two looks whether a job still waits for its nodes."""
GONE_SECONDS: Final = 5.0
"""How long a pod has to be missing until its node is given up: the copy of the pods may be a moment old."""


@dataclass(kw_only=True)
class Ready:
    """Which nodes can run jobs, for those that wait for it."""

    _changed: threading.Condition = field(default_factory=threading.Condition)
    _nodes: Mapping[str, Node] = field(default_factory=dict)
    _looks: int = 0
    _deaf: int = 0

    def give_up(self) -> None:
        """Let all go that wait: slurmctld has not answered for long, and nobody knows of any node."""
        with self._changed:
            self._deaf += 1
            self._changed.notify_all()

    def put(self, nodes: Mapping[str, Node]) -> None:
        """What the latest look has seen."""
        with self._changed:
            self._nodes, self._looks = nodes, self._looks + 1
            self._changed.notify_all()

    def wait(self, names: frozenset[str], seconds: float, is_wanted: Callable[[], bool] = lambda: True) -> bool:
        """Return when all of these nodes are up (True), when one of them will not be, or after `seconds`.

        Slurm powers a node up within a second of giving it to a job: until then it is off, and that says nothing.
        `is_wanted`: asked now and then whether anybody still waits: a job that is cancelled no longer does.
        """
        deadline, seen_coming = time.monotonic() + seconds, False
        with self._changed:
            first, deaf = self._looks, self._deaf
            while True:
                nodes = [self._nodes.get(name) for name in names]
                if all(node is not None and node.is_up for node in nodes):
                    return True
                coming = any(node is not None and node.is_coming for node in nodes)
                failed = any(node is None or node.is_down or (seen_coming and node.is_off) for node in nodes)
                if self._looks > first and failed:
                    return False
                seen_coming = seen_coming or coming
                left = deadline - time.monotonic()
                if left <= 0 or self._deaf > deaf or not is_wanted():
                    return False
                self._changed.wait(min(left, ASKED_SECONDS))


class Rounds:
    """Looks, decides and does. One thread."""

    def __init__(
        self,
        *,
        nodes: Nodes,
        pods: Pods,
        pools: Callable[[], Mapping[str, Pool]],
        there: Callable[[], Mapping[str, Pod]],
        synced: Callable[[], bool],
        log: Callable[[str], None],
        now: Callable[[], float] = time.time,
    ) -> None:
        self.ready = Ready()
        self._nodes, self._pods, self._pools, self._there, self._synced = nodes, pods, pools, there, synced
        self._log, self._now = log, now
        self._pauses = Pauses()
        self._jobs: dict[str, frozenset[str]] = {}
        self._missing_since: dict[str, float] = {}
        self._refused: dict[str, tuple[float, float, str]] = {}
        """Until when a pool is not asked for again, after which pause, and why."""

    def look(self) -> float:
        """One look; seconds until the next one. Raises SlurmError."""
        started = time.monotonic()
        nodes = self._nodes.read()
        self.ready.put(nodes)
        if not self._synced():
            return QUICK_SECONDS
        view = View(pools=self._pools(), nodes=nodes, pods=self._there())
        if any(node.is_coming for node in nodes.values()):
            self._jobs = nodes_of_jobs(self._jobs, self._nodes.starting())
        plan = decide(view)
        self._pauses.decide(plan, view, self._jobs, self._now())
        self._wait_for_the_missing(plan)
        self._do(plan, view)
        # A record that Slurm does not let go, as a job asks for it by name, is no reason to hurry.
        acts = plan.create or plan.start or plan.end or plan.update
        moving = acts or any(node.is_coming or node.goes_down for node in nodes.values())
        took = time.monotonic() - started
        return min(max(QUICK_SECONDS, SHARE * took), USUAL_SECONDS) if moving else USUAL_SECONDS

    def _start(self, pool: Pool, names: list[str]) -> None:
        """Make pods; where they are refused, try again after one second, two, four, at last thirty."""
        now = self._now()
        until, pause, said = self._refused.get(pool.name, (0.0, 0.5, ""))
        if now < until:
            return
        refusal = self._pods.start(pool, names)
        if not refusal:
            self._refused.pop(pool.name, None)
            return
        pause = min(2 * pause, LONGEST_REFUSAL_SECONDS)
        self._refused[pool.name] = (now + pause, pause, refusal)
        if refusal != said:
            self._log(refusal)

    def _wait_for_the_missing(self, plan: Plan) -> None:
        """Give a node up only when its pod has been missing for a while."""
        now = self._now()
        suspects = {name for (state, _), names in plan.update.items() if state == "down" for name in names}
        self._missing_since = {name: self._missing_since.get(name, now) for name in suspects}
        for (state, reason), names in list(plan.update.items()):
            if state == "down":
                plan.update[state, reason] = [name for name in names if now - self._missing_since[name] >= GONE_SECONDS]
                if not plan.update[state, reason]:
                    del plan.update[state, reason]

    def _do(self, plan: Plan, view: View) -> None:
        """Pods first: a job waits for them."""
        for pool, names in plan.start.items():
            self._start(view.pools[pool], names)
        self._pods.end(plan.end.values())
        for (state, reason), names in plan.update.items():
            self._nodes.update(names, state, reason)
        for pool, names in plan.create.items():
            self._nodes.create(view.pools[pool], names)
        if plan.delete:
            self._nodes.delete(plan.delete)
