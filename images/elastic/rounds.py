"""One look after the other at elastic pools, and at fixed ones whose pods are replaced; and what is done then."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, NoReturn

from images.common.elastic.view import Node, Pod, Pool, are_too_many
from images.common.slurm_node import STAYS_LEAVING
from images.common.slurm_records import compress
from images.common.wait import Clock, Reminder
from images.elastic.bounds import Bounds, Pauses, keep_within
from images.elastic.decide import Plan, View, decide
from images.elastic.nodes import Nodes, SlurmError
from images.elastic.pods import Pods
from images.elastic.rolls import FixedPool, Roll, drained_for_it, hold_outdated, is_outdated, roll

SHORTEST_SECONDS: Final = 0.1
"""Between two looks, however many programs ask for one."""
SHARE: Final = 4.0
"""A look that takes long, with thousands of nodes, is followed by a pause of this many times its length."""

QUICK_SECONDS: Final = 0.25
"""Between two looks while nodes come: a job waits for the one that sees them."""
USUAL_SECONDS: Final = 10.0
"""While nothing happens. Who starts or ends nodes has us look at once."""
LONGEST_REFUSAL_SECONDS: Final = 30.0
"""Between two tries to make pods that Kubernetes refuses (a quota, an admission), or to end some without an answer."""
ENDS: Final = ""
"""What of pods that end is remembered under, beside pools' names."""
ASKED_SECONDS: Final = 5.0
"""Between two looks whether a job still waits for its nodes."""
SILENT_SECONDS: Final = 2.0
"""Until the next try where slurmctld does not answer."""
LONGEST_SILENT_SECONDS: Final = 30.0
"""For which jobs wait for an answer while slurmctld gives none."""
OLD_SECONDS: Final = 1.0
"""After which what was seen is too old to change nodes by: the API server has taken long."""
STUCK_SECONDS: Final = 60.0
"""How long a pod may take to go whose node is off. It waits for no job then; most are gone after a few seconds."""
GONE_SECONDS: Final = 5.0
"""How long a pod has to be missing until its node is given up: the copy of the pods may be a moment old."""
ROLL_SECONDS: Final = 0.5
"""Between two looks when something was done."""
ROLLING_SECONDS: Final = 2.0
"""While nodes are waited for."""
ROLLED_SECONDS: Final = 60.0
"""While all pods are new: then only Kubernetes is looked at, and its events have us look at once."""


class Wake:
    """Who asks is heard at once. Events of pods wait for as long as a look may come again in any case.

    A thousand pods that come have thousands of events, and each look asks slurmctld for all nodes: they were ten looks
    a second, as close as looks of a second each.
    """

    def __init__(self) -> None:
        self._asked, self._changed = threading.Event(), threading.Event()

    def ask(self) -> None:
        """One of slurmctld's programs wants a look."""
        self._asked.set()
        self._changed.set()

    def change(self) -> None:
        """A pod or a template has changed."""
        self._changed.set()

    def forget(self) -> None:
        """A look begins, which sees all of it."""
        self._asked.clear()
        self._changed.clear()

    def wait(self, seconds: float, quick: float) -> None:
        """Return after so many seconds, or when somebody asks, or after `quick` when something has changed.

        Whoever asks, and however often: no more than half of the time goes into looks.
        """
        rest = max(SHORTEST_SECONDS, quick / SHARE)
        time.sleep(rest)
        if not self._asked.wait(max(0.0, min(seconds, quick) - rest)):
            self._changed.wait(max(0.0, seconds - quick))


def keep_looking(
    look: Callable[[], float],
    wake: Wake,
    log: Callable[[str], None],
    quick: Callable[[], float],
    heard_nothing: Callable[[], None] = lambda: None,
) -> NoReturn:
    """Look for ever. `look`: seconds until the next one. `heard_nothing`: done while slurmctld is silent for long."""
    clock = Clock()
    reminder, heard = Reminder(log, clock), clock.now()
    while True:
        wake.forget()
        try:
            pause = look()
            reminder, heard = Reminder(log, clock), clock.now()
        except SlurmError as error:
            reminder.waiting(f"slurmctld: {error}")
            pause = SILENT_SECONDS
            if clock.now() - heard > LONGEST_SILENT_SECONDS:
                heard_nothing()
        wake.wait(pause, quick())


@dataclass(kw_only=True)
class Ready:
    """Which nodes can run jobs, for those that wait for it."""

    _changed: threading.Condition = field(default_factory=threading.Condition)
    _nodes: Mapping[str, Node] = field(default_factory=dict)
    most: int = 65536
    """Nodes that a list can have: as many as the latest look has seen, or, before the first, any cluster."""
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
            self._nodes, self._looks, self.most = nodes, self._looks + 1, len(nodes)
            self._changed.notify_all()

    def are_up(self, names: frozenset[str]) -> bool:
        """Whether the latest look has seen all of these nodes up."""
        with self._changed:
            return all(name in self._nodes and self._nodes[name].is_up for name in names)

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
    """Looks at elastic pools, decides and does. One thread."""

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
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        """`now`: seconds since 1970. `steady`: seconds on a clock that nobody sets."""
        self.ready = Ready()
        self.quick_seconds = QUICK_SECONDS
        """From one look to the next one for events of pods: by what it costs to see, not by what was done then."""
        self._nodes, self._pods, self._pools, self._there, self._synced = nodes, pods, pools, there, synced
        self._log, self._now, self._steady = log, now, steady
        self._pauses, self._bounds = Pauses(), Bounds(log)
        self._jobs: dict[str, frozenset[str]] = {}
        self._missing_since: dict[str, float] = {}
        self._leaving_since: dict[str, float] = {}
        self._refused: dict[str, tuple[float, float, str]] = {}
        """Until when a pool's pods or records are not made, or, for ENDS, none is ended; after which pause, and why."""

    def look(self) -> float:
        """One look; seconds until the next one. Raises SlurmError."""
        started = time.monotonic()
        nodes = self._nodes.read()
        self.ready.put(nodes)
        if not self._synced():
            return self._pause(started)
        now = self._now()
        pools = self._bounds.of(self._pools(), now)
        there = self._there()
        ends = self._nodes.ends() if _ends_matter(pools, nodes, there) else {}
        view = View(pools=pools, nodes=nodes, pods=there, ends=ends, stuck=self._stuck(nodes, there))
        if any(node.is_coming for node in nodes.values()):
            # The latest thousand: a job that waits is often seen gone.
            self._jobs = dict(list({**self._jobs, **self._nodes.starting()}.items())[-1000:])
        plan = decide(view)
        self._pauses.decide(plan, view, self._jobs, now)
        self._jobs = {
            job: of for job, of in self._jobs.items() if any(one in nodes and nodes[one].is_coming for one in of)
        }
        keep_within(plan, view, now)
        hold_outdated(plan, view, now)
        self._wait_for_the_missing(plan)
        self.quick_seconds = self._pause(started)
        self._do(plan, view)
        # A record that Slurm does not let go, as a job asks for it by name, is no reason to hurry.
        creates = any(_records_of(pool) not in self._refused for pool in plan.create)
        acts = creates or plan.place or plan.start or plan.end or plan.update
        moving = acts or any(node.is_moving for node in nodes.values())
        return self._pause(started) if moving else USUAL_SECONDS

    @staticmethod
    def _pause(started: float) -> float:
        """Until the next look while something happens."""
        return min(max(QUICK_SECONDS, SHARE * (time.monotonic() - started)), USUAL_SECONDS)

    def _try(self, what: str, do: Callable[[], str]) -> None:
        """Do what tells why it is refused; where it is, again after one second, two, four, at last thirty."""
        now = self._steady()
        until, pause, said = self._refused.get(what, (0.0, 0.5, ""))
        if now < until:
            return
        refusal = do()
        if not refusal:
            self._refused.pop(what, None)
            return
        pause = min(2 * pause, LONGEST_REFUSAL_SECONDS)
        self._refused[what] = (self._steady() + pause, pause, refusal)
        if refusal != said:
            self._log(refusal)

    def _stuck(self, nodes: Mapping[str, Node], pods: Mapping[str, Pod]) -> Collection[str]:
        """Nodes whose pods should have gone: the machine is dead, or its kubelet, and nobody has told Kubernetes."""
        now = self._steady()
        leaving = [nodes[pod.name] for pod in pods.values() if pod.is_leaving and pod.name in nodes]
        self._leaving_since = {
            node.name: now - STUCK_SECONDS if node.reason == STAYS_LEAVING else self._leaving_since.get(node.name, now)
            for node in leaving
            if node.is_powered_down
        }
        return {name for name, since in self._leaving_since.items() if now - since >= STUCK_SECONDS}

    def _wait_for_the_missing(self, plan: Plan) -> None:
        """Give a node up only when its pod has been missing for a while."""
        now = self._steady()
        suspects = {name for (state, _), names in plan.update.items() if state == "down" for name in names}
        self._missing_since = {name: self._missing_since.get(name, now) for name in suspects}
        for (state, reason), names in list(plan.update.items()):
            if state == "down":
                plan.update[state, reason] = [name for name in names if now - self._missing_since[name] >= GONE_SECONDS]
                if not plan.update[state, reason]:
                    del plan.update[state, reason]

    def _do(self, plan: Plan, view: View) -> None:
        """What keeps jobs from nodes first, before they get them; then pods, for which jobs wait."""
        for (state, reason), names in plan.update.items():
            if state == "drain":
                self._nodes.drain(names, reason)
        began = self._steady()
        for pool, names in plan.start.items():
            self._try(pool, functools.partial(self._pods.start, view.pools[pool], names))
        if plan.end:
            self._try(ENDS, functools.partial(self._pods.end, plan.end.values()))
        if self._steady() - began > OLD_SECONDS:
            return
        # Before a drain is lifted: the record that comes in its place may have other CPUs, memory and GPUs.
        gone = self._nodes.delete(plan.delete) if plan.delete else frozenset()
        for (state, reason), names in plan.update.items():
            if state != "drain" and (left := [name for name in names if name not in gone]):
                self._nodes.update(left, state, reason)
        for pool, names in plan.create.items():
            self._try(_records_of(pool), functools.partial(self._nodes.create, view.pools[pool], names))
        for pool, names in plan.place.items():
            self._nodes.place(view.pools[pool], names)


def _ends_matter(pools: Mapping[str, Pool], nodes: Mapping[str, Node], pods: Mapping[str, Pod]) -> bool:
    """Whether some nodes must leave that have jobs, or have old pods, so that it matters when those end."""
    old = (pod for pod in pods.values() if pod.digest and pod.pool in pools and pod.digest != pools[pod.pool].digest)
    return any(True for _ in old) or any(are_too_many(pool, nodes) for pool in pools.values())


def _records_of(pool: str) -> str:
    return f"records of {pool}"


@dataclass(kw_only=True)
class RollRounds:
    """Looks at the pods of fixed pools (rolls.py), decides and does. One thread."""

    nodes: Nodes
    pods: Pods
    pools: Callable[[], Mapping[str, FixedPool | None]]
    there: Callable[[], Mapping[str, Pod]]
    synced: Callable[[], bool]
    log: Callable[[str], None]
    _owes: bool = True
    """Whether nodes may be drained for it, of which only Slurm knows."""
    _said: dict[str, str] = field(default_factory=dict)

    def look(self) -> float:
        """One look; seconds until the next one. Raises SlurmError."""
        if not self.synced():
            return ROLLING_SECONDS
        pools = {name: pool for name, pool in self.pools().items() if pool is not None}
        pods = self.there()
        rolling = [
            pool
            for pool in pools.values()
            if any(is_outdated(pool, pods[name]) for name in pool.nodes() if name in pods)
        ]
        if not rolling and not self._owes:
            self._tell({})
            return ROLLED_SECONDS
        started = time.monotonic()
        nodes = self.nodes.read()
        ends = self.nodes.ends() if rolling else {}
        plans = {pool.name: roll(pool, nodes, pods, ends) for pool in pools.values()}
        self._owes = any(drained_for_it(node) for node in nodes.values())
        self._tell({pool.name: _told(pool, plans[pool.name], nodes) for pool in rolling})
        acts = [self._do(plan) for plan in plans.values()]
        pause = ROLL_SECONDS if any(acts) else ROLLING_SECONDS
        return max(pause, SHARE * (time.monotonic() - started))

    def _do(self, plan: Roll) -> bool:
        if plan.resume:
            self.nodes.update(plan.resume, "resume", "")
        if plan.drain:
            self.nodes.roll(plan.drain)
            self._owes = True
        if plan.end and (refused := self.pods.end(plan.end)):
            self.log(refused)
        return bool(plan.resume or plan.drain or plan.end)

    def _tell(self, said: dict[str, str]) -> None:
        for name, text in said.items():
            if self._said.get(name) != text:
                self.log(text)
        for name in self._said.keys() - said.keys():
            self.log(f"pool {name}: no node has an old pod any more")
        self._said = said


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
