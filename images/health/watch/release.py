"""Hands machines over for replacement: a Node is cordoned once its workers are drained for a fault and free of jobs.

Such a machine has a hardware fault, or a condition of the site's choice (maintenance). Its Node gets an annotation that
names the check, and a condition if the site names one, for a cloud's controller or a person to act on. With `evict` the
workers leave it, too. Nothing is uncordoned here, and no machine or Node is deleted: whoever mends a machine uncordons
it, and the watcher forgets the fault as soon as the workers there take jobs again. A pod leaves only by its eviction,
which heeds PodDisruptionBudgets and the pod's own time to end. What keeps a wrong check from hurting the cluster:

- The check fails now, on this machine, and the drain for it has stood for `after` seconds.
- All workers on the machine are ours, drained by us and without jobs. What somebody has cordoned is left to them.
- At most `max_unavailable` machines of our workers are released or not ready at a time.

All that is needed for that is in Slurm's records and on the Node, so a restart changes nothing. A thread of its own
does it: no drain waits for the API server.
"""

from __future__ import annotations

import enum
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from images.common.health.contract import Status
from images.common.health.report import SKEW_SECONDS, Finding, stamp
from images.common.health.slurm import Slurm, SlurmError
from images.common.kubernetes import Kube, KubeError
from images.health.watch.decide import KUBERNETES, Limit, NodeView
from images.health.watch.kubernetes import Teller
from images.health.watch.machines import OWN_WORDS, RELEASED_FOR, Machine, Machines, Place, machine_of

RELEASE_AFTER_SECONDS: Final = 600.0
"""A fault that goes away by itself is not worth a machine."""
_MERGE: Final = "application/strategic-merge-patch+json"
"""Merges the list of conditions by their type, so that the others, which kubelet writes, stay."""
_REPLACE: Final = "application/merge-patch+json"
TRY_AGAIN_SECONDS: Final = 30.0
"""Between two tries of a move, and between two releases: the copy of the cluster shows the first one by then."""


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What the site wants."""

    evict: bool = False
    """Workers leave the machine; else whoever takes it sees to that."""
    max_unavailable: Limit
    after: float = RELEASE_AFTER_SECONDS
    condition: str = ""
    """Type of the condition that is set on released machines; empty: none."""
    report_only: frozenset[str] = frozenset()
    """Checks whose failure releases nothing."""


class Step(enum.Enum):
    """What can be done about a machine; the value is the reason of its event."""

    RELEASE = "SlurmMachineReleased"
    """Set the condition, cordon and annotate it."""
    EVICT = "SlurmWorkerEvicted"
    """Have a worker leave it."""
    FORGET = "SlurmMachineWell"
    """Somebody has uncordoned it, and its workers take jobs: take back condition and annotation."""


@dataclass(frozen=True, kw_only=True)
class Move:
    """Something to do about a machine."""

    step: Step
    machine: str
    worker: str
    """Slurm node whose event tells of it; of EVICT the one that leaves."""
    why: str
    check: str = ""
    """Of RELEASE: the check that fails."""

    def __str__(self) -> str:
        """For people."""
        return f"{self.step.name.lower()} machine {self.machine} (node {self.worker}): {self.why}"


@dataclass(frozen=True, kw_only=True)
class _Worker:
    name: str
    place: Place
    view: NodeView | None

    @property
    def is_free(self) -> bool:
        """Whether it is kept free of jobs by us, and has none."""
        return self.view is not None and self.view.is_drained_by_us and self.view.is_quiet and not self.place.leaving

    def cause(self, rules: Rules, now: float) -> tuple[float, str] | None:
        """Since when its machine should be released, and the check that wants it."""
        view = self.view
        if view is None or view.own is None or view.reason_at is None or self.place.started is None:
            return None
        since = max(view.reason_at, self.place.started)
        unwanted = self._failure(KUBERNETES, rules, now)
        if unwanted is not None and unwanted.unwanted_since is not None:
            return max(since, unwanted.unwanted_since), KUBERNETES
        failure = self._failure(view.own.check, rules, now)
        if view.own.fault == "hardware" and failure is not None and failure.result.fault == "hardware":
            return since, view.own.check
        return None

    def _failure(self, check: str, rules: Rules, now: float) -> Finding | None:
        """What the check has found since the worker is on this machine: its record outlives its pods."""
        finding = self.view.findings.get(check) if self.view is not None else None
        if finding is None or finding.result.status is not Status.FAIL or check in rules.report_only:
            return None
        seen_here = self.place.started is not None and finding.at > self.place.started + SKEW_SECONDS
        return finding if seen_here and finding.is_fresh(now) else None


def plan(
    views: Iterable[NodeView], pods: Mapping[str, Place], machines: Mapping[str, Machine], rules: Rules, now: float
) -> tuple[list[Move], list[Move]]:
    """What to do, and which machines have to wait because of `max_unavailable`.

    `pods`: all worker pods of this cluster. `now`: seconds since 1970.
    """
    by_name = {view.name: view for view in views}
    on_machine: dict[str, list[_Worker]] = defaultdict(list)
    for name, place in sorted(pods.items()):
        if place.node:
            on_machine[place.node].append(_Worker(name=name, place=place, view=by_name.get(name)))
    moves: list[Move] = []
    wishes: list[tuple[float, Move]] = []
    for name, workers in sorted(on_machine.items()):
        machine = machines.get(name)
        if machine is None:
            continue
        if machine.released_for:
            moves += _about_released(name, machine, workers, rules)
        elif not machine.cordoned and (wish := _wish(name, workers, rules, now)) is not None:
            wishes.append(wish)
    oldest_first = [move for _, move in sorted(wishes, key=lambda wish: (wish[0], wish[1].machine))]
    released, held = _within_limit(oldest_first, on_machine, pods, machines, rules)
    return [*moves, *released], held


def _about_released(name: str, machine: Machine, workers: list[_Worker], rules: Rules) -> Iterable[Move]:
    if machine.cordoned:
        leaving = [worker for worker in workers if worker.is_free] if rules.evict else []
        return [Move(step=Step.EVICT, machine=name, worker=one.name, why=machine.released_for) for one in leaving]
    if not all(worker.view is not None and worker.view.takes_jobs for worker in workers):
        return []
    why = f"it was released for {machine.released_for}, and its workers take jobs again"
    return [Move(step=Step.FORGET, machine=name, worker=workers[0].name, why=why)]


def _wish(name: str, workers: list[_Worker], rules: Rules, now: float) -> tuple[float, Move] | None:
    """Since when the machine should be released, limits aside; None: it should not."""
    if not all(worker.is_free for worker in workers):
        return None
    causes = [(*cause, worker) for worker in workers if (cause := worker.cause(rules, now)) is not None]
    if not causes:
        return None
    since, check, worker = min(causes, key=lambda cause: (cause[0], cause[2].name))
    if now - since < rules.after or worker.view is None:
        return None
    why = f"health/{check}: {worker.view.findings[check].result.message}"
    return since, Move(step=Step.RELEASE, machine=name, worker=worker.name, check=check, why=why)


def _within_limit(
    wishes: list[Move],
    on_machine: Mapping[str, list[_Worker]],
    pods: Mapping[str, Place],
    machines: Mapping[str, Machine],
    rules: Rules,
) -> tuple[list[Move], list[Move]]:
    """What may be released now, and what has to wait.

    Workers that have no machine count too: theirs may be gone, and with it all that told of it. One that waits because
    its machine is released is not counted twice.
    """
    released = {name for name, machine in machines.items() if machine.is_released}
    bad = {name for name in on_machine if name in released or name not in machines or machines[name].ready != "True"}
    homeless = sum(1 for place in pods.values() if not place.node and not place.leaving)
    unavailable = len(bad) + max(len(released - on_machine.keys()), homeless)
    limit = rules.max_unavailable.of(len(on_machine.keys() | released))
    granted: list[Move] = []
    held: list[Move] = []
    for move in wishes:
        more = move.machine not in bad
        allowed = unavailable + more <= limit
        (granted if allowed else held).append(move)
        unavailable += more and allowed
    return granted, held


@dataclass(kw_only=True)
class Releaser:
    """Does what is planned, one move after the other."""

    kube: Kube
    slurm: Slurm
    copies: Machines
    rules: Rules
    log: Callable[[str], None]
    events: Teller | None = None
    dry_run: bool = False
    pool: Executor = field(default_factory=partial(ThreadPoolExecutor, max_workers=1, thread_name_prefix="release"))
    """One thread, as moves follow each other."""
    wall: Callable[[], float] = time.time
    """The clock that slurmctld has too."""
    _running: Future[None] | None = None
    _tried: dict[tuple[Step, str], float] = field(default_factory=dict)
    """When each move was tried; releases have one entry together."""
    _told: frozenset[str] = frozenset()

    def saw(self, views: Sequence[NodeView], now: float) -> None:
        """The nodes as they are. While moves are under way, the next ones wait."""
        if not self.copies.synced or not (self._running is None or self._running.done()):
            return
        self.finish()
        moves, held = plan(views, self.copies.pods.values(), self.copies.nodes.values(), self.rules, now)
        self._tell_held(frozenset(move.machine for move in held))
        due = []
        for move in moves:
            key = move.step, "" if move.step is Step.RELEASE else move.worker
            if now - self._tried.get(key, float("-inf")) >= TRY_AGAIN_SECONDS:
                self._tried[key] = now
                due.append(move)
        self._running = self.pool.submit(self._make, due, {view.name: view for view in views}) if due else None

    def finish(self) -> None:
        """Wait for moves that are under way."""
        if self._running is not None:
            self._running.result()

    def _make(self, moves: Sequence[Move], seen: Mapping[str, NodeView]) -> None:
        for move in moves:
            if self.dry_run:
                self.log(f"would {move}")
                continue
            try:
                done = self._move(move, seen)
            except (KubeError, SlurmError, OSError, ValueError) as error:
                self.log(f"cannot {move}: {error}")
                continue
            if done:
                self.log(str(move))
                if self.events is not None:
                    warning, at = move.step is not Step.FORGET, self.wall()
                    self.events.event(move.worker, reason=move.step.value, message=str(move), warning=warning, now=at)

    def _move(self, move: Move, seen: Mapping[str, NodeView]) -> bool:
        """Do it; False: all is not as it was seen any more. Raises KubeError, SlurmError, ValueError."""
        machine, condition = machine_of(self.kube.get(f"/api/v1/nodes/{move.machine}")), self.rules.condition
        if move.step is Step.FORGET:
            if machine.cordoned or not machine.released_for:
                return False
            if machine.conditions.get(condition, "").startswith(OWN_WORDS):
                self._set_condition(move, "False")
            self._patch(move, {"metadata": {"annotations": {RELEASED_FOR: None}}})
            return True
        here = {name: place for name, place in self.copies.pods.values().items() if place.node == move.machine}
        leaving = [move.worker] if move.step is Step.EVICT else here
        if not all(name in seen and self._is_free(seen[name]) for name in leaving):
            return False
        if move.step is Step.EVICT:
            is_wanted = machine.is_released and move.worker in here
            if is_wanted:
                self._evict(move.worker, here[move.worker].uid)
            return is_wanted
        if machine.cordoned or machine.released_for:
            return False
        if condition and condition not in machine.conditions:
            self._set_condition(move, "True")
        mark = {RELEASED_FOR: f"health/{move.check}"}
        self._patch(move, {"metadata": {"annotations": mark}, "spec": {"unschedulable": True}})
        return True

    def _is_free(self, seen: NodeView) -> bool:
        """Whether the node is still drained for what was seen, and no job has it. Raises SlurmError."""
        now = self.slurm.node(seen.name)
        as_seen = now is not None and now.reason == seen.reason and now.is_drained_by_us and now.is_quiet
        return as_seen and not self.slurm.jobs_of(seen.name)

    def _patch(self, move: Move, change: Mapping[str, Any], *, of: str = "", how: str = _REPLACE) -> None:
        self.kube.send("PATCH", f"/api/v1/nodes/{move.machine}{of}", change, how)

    def _set_condition(self, move: Move, status: str) -> None:
        """Set the site's condition, which had another status until now."""
        at = stamp(self.wall())
        condition = {"type": self.rules.condition, "status": status, "reason": "SlurmHealth"}
        condition |= {"message": f"{OWN_WORDS}{move.worker}: {move.why}"}
        condition |= {"lastHeartbeatTime": at, "lastTransitionTime": at}
        self._patch(move, {"status": {"conditions": [condition]}}, of="/status", how=_MERGE)

    def _evict(self, pod: str, uid: str) -> None:
        """Have a pod leave its machine, if it is still this one."""
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": self.kube.namespace},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        self.kube.send("POST", f"{self.kube.path('pods')}/{pod}/eviction", eviction)

    def _tell_held(self, held: frozenset[str]) -> None:
        if held and held != self._told:
            names = ", ".join(sorted(held)[:20]) + (f", and {len(held) - 20} more" if len(held) > 20 else "")
            self.log(f"not released, as no more than {self.rules.max_unavailable} may be unavailable: {names}")
        self._told = held
