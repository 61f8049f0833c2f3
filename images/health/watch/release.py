"""Hands machines over for replacement: a Node is cordoned once its workers are drained for a fault and free of jobs.

Such a machine has a hardware fault, or a condition of the site's choice (maintenance). Its Node gets an annotation that
names the check, and a condition if the site names one, for a cloud's controller or a person to act on. Nothing is
uncordoned here, and no pod, machine or Node is deleted: whoever mends a machine uncordons it, and the watcher forgets
the fault as soon as the workers there take jobs again. What keeps a wrong check from hurting the cluster:

- The check fails now, on this machine, and the drain for it has stood for `after` seconds.
- All workers on the machine are ours, drained by us and without jobs. What somebody has cordoned is left to them.
- At most `max_unavailable` machines of our workers are released or not ready at a time.

All that is needed for that is in Slurm's records and on the Node, so a restart changes nothing, but that the time of
what is not the reason of the drain begins anew.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from images.common.health.contract import Status
from images.common.health.report import SKEW_SECONDS, stamp
from images.common.health.slurm import Slurm
from images.common.kubernetes import Kube, KubeError
from images.health.watch.decide import KUBERNETES, Limit, NodeView
from images.health.watch.machines import OWN_WORDS, RELEASED_FOR, Machine, Machines, Place, machine_of

RELEASE_AFTER_SECONDS: Final = 600.0
"""A fault that goes away by itself is not worth a machine."""
_MERGE: Final = "application/strategic-merge-patch+json"
"""Merges the list of conditions by their type, so that the others, which kubelet writes, stay."""
_REPLACE: Final = "application/merge-patch+json"
PAUSE_SECONDS: Final = 30.0
"""Between two times that anything is changed: the copy of the cluster shows the first by then."""


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What the site wants."""

    max_unavailable: Limit
    after: float = RELEASE_AFTER_SECONDS
    condition: str = ""
    """Type of the condition that is set on released machines; empty: none."""
    report_only: frozenset[str] = frozenset()
    """Checks whose failure releases nothing."""


@dataclass(frozen=True, kw_only=True)
class Move:
    """Something to do about a machine."""

    machine: str
    worker: str
    why: str
    check: str = ""
    """The check that fails: set the condition, cordon and annotate the machine. Empty: somebody has uncordoned it, and
    its workers take jobs: take back condition and annotation."""

    def __str__(self) -> str:
        """For people."""
        return f"{'release' if self.check else 'forget'} machine {self.machine} (node {self.worker}): {self.why}"


def _cause(view: NodeView, place: Place, rules: Rules, now: float) -> tuple[float, str] | None:
    """Since when its machine should be released, and the check that wants it.

    Only what was found since pod and slurmd have started there counts: the record outlives its pods, which change
    machines, and tells of the slurmd before until the new one registers.
    """
    if view.own is None or view.reason_at is None or place.started is None:
        return None
    began = max(view.started_at, place.started)
    failing = {
        check: finding
        for check, finding in view.findings.items()
        if check not in rules.report_only
        and finding.result.status is Status.FAIL
        and finding.at > began + SKEW_SECONDS
        and finding.is_fresh(now)
    }
    unwanted = failing.get(KUBERNETES)
    if unwanted is not None and unwanted.unwanted_since is not None:
        return max(began, view.drained_since(KUBERNETES), unwanted.unwanted_since), KUBERNETES
    broken = [check for check, finding in failing.items() if finding.result.fault == "hardware"]
    return min(((max(began, view.drained_since(check)), check) for check in broken), default=None)


def plan(
    views: Iterable[NodeView], pods: Mapping[str, Place], machines: Mapping[str, Machine], rules: Rules, now: float
) -> tuple[list[Move], list[Move]]:
    """What to do, and which machines have to wait because of `max_unavailable`.

    `pods`: where each worker pod of this cluster is. `now`: seconds since 1970.
    """
    by_name = {view.name: view for view in views}
    on_machine: dict[str, dict[str, NodeView | None]] = defaultdict(dict)
    for name, place in sorted(pods.items()):
        if place.node:
            on_machine[place.node][name] = by_name.get(name)
    moves: list[Move] = []
    wishes: list[tuple[float, Move]] = []
    for name, workers in sorted(on_machine.items()):
        machine = machines.get(name)
        if machine is None:
            continue
        if machine.released_for:
            if not machine.cordoned and all(view is not None and view.takes_jobs for view in workers.values()):
                why = f"it was released for {machine.released_for}, and its workers take jobs again"
                moves.append(Move(machine=name, worker=min(workers), why=why))
        elif not machine.cordoned and (wish := _wish(name, workers, pods, rules, now)) is not None:
            wishes.append(wish)
    room = _room(on_machine.keys(), pods, machines, rules)
    held: list[Move] = []
    for _, move in sorted(wishes, key=lambda wish: (wish[0], wish[1].machine)):  # the oldest first
        more = machines[move.machine].ready == "True"  # else it counts already
        (moves if room >= more else held).append(move)
        room -= more
    return moves, held


def _wish(
    name: str, workers: Mapping[str, NodeView | None], pods: Mapping[str, Place], rules: Rules, now: float
) -> tuple[float, Move] | None:
    """Since when the machine should be released, limits aside; None: it should not."""
    views = [view for view in workers.values() if view is not None and view.is_drained_by_us and view.is_quiet]
    if len(views) < len(workers):
        return None
    found = [(_cause(view, pods[view.name], rules, now), view) for view in views]
    causes = [(*cause, view.name, view) for cause, view in found if cause is not None]
    if not causes:
        return None
    since, check, worker, view = min(causes, key=lambda cause: (cause[0], cause[2]))
    if now - since < rules.after:
        return None
    why = f"health/{check}: {view.findings[check].result.message}"
    return since, Move(machine=name, worker=worker, check=check, why=why)


def _room(ours: Iterable[str], pods: Mapping[str, Place], machines: Mapping[str, Machine], rules: Rules) -> int:
    """How many more machines may be released now.

    Workers that have no machine count too: theirs may be gone, and with it all that told of it.
    """
    every = {*ours, *(name for name, machine in machines.items() if machine.is_released)}
    there = [machines[name] for name in every & machines.keys()]
    well = sum(machine.ready == "True" and not machine.is_released for machine in there)
    homeless = sum(not place.node for place in pods.values())
    return rules.max_unavailable.of(len(every)) - (len(every) - well) - homeless


@dataclass(kw_only=True)
class Releaser:
    """Does what is planned."""

    kube: Kube
    slurm: Slurm
    copies: Machines
    rules: Rules
    log: Callable[[str], None]
    wall: Callable[[], float] = time.time
    """The clock that slurmctld has too."""
    _tried_at: float = float("-inf")
    _told: tuple[str, ...] = ()

    def saw(self, views: Sequence[NodeView], now: float) -> None:
        """The nodes as they are. Raises SlurmError."""
        if not self.copies.synced or now - self._tried_at < PAUSE_SECONDS:
            return
        moves, held = plan(views, self.copies.pods.values(), self.copies.nodes.values(), self.rules, now)
        names = tuple(move.machine for move in held)
        if names and names != self._told:
            limit = self.rules.max_unavailable
            self.log(f"not released, as no more than {limit} may be unavailable: {', '.join(names)}")
        self._told = names
        for move in moves:
            self._tried_at = now
            try:
                if self._move(move, {view.name: view for view in views}):
                    self.log(str(move))
            except (KubeError, OSError, ValueError) as error:
                self.log(f"cannot {move}: {error}")

    def _move(self, move: Move, seen: Mapping[str, NodeView]) -> bool:
        """Do it; False: all is not as it was seen any more. Raises KubeError, SlurmError, ValueError."""
        machine, condition = machine_of(self.kube.get(f"/api/v1/nodes/{move.machine}")), self.rules.condition
        if not move.check:
            if machine.cordoned or not machine.released_for:
                return False
            if machine.conditions.get(condition, "").startswith(OWN_WORDS):
                self._set_condition(move, "False")
            self._patch(move, {"metadata": {"annotations": {RELEASED_FOR: None}}})
            return True
        here = [name for name, place in self.copies.pods.values().items() if place.node == move.machine]
        if machine.cordoned or machine.released_for or not all(self._is_free(seen.get(name)) for name in here):
            return False
        if condition and condition not in machine.conditions:
            self._set_condition(move, "True")
        mark = {RELEASED_FOR: f"health/{move.check}"}
        self._patch(move, {"metadata": {"annotations": mark}, "spec": {"unschedulable": True}})
        return True

    def _is_free(self, seen: NodeView | None) -> bool:
        """Whether the node is still drained as it was seen, and no job has it. Raises SlurmError."""
        now = self.slurm.node(seen.name) if seen is not None else None
        if seen is None or now is None or now.reason != seen.reason:
            return False
        # A node whose job is suspended counts as idle.
        return now.is_drained_by_us and now.is_quiet and not self.slurm.jobs_of(now.name)

    def _patch(self, move: Move, change: Mapping[str, Any], *, of: str = "", how: str = _REPLACE) -> None:
        self.kube.send("PATCH", f"/api/v1/nodes/{move.machine}{of}", change, how)

    def _set_condition(self, move: Move, status: str) -> None:
        """Set the site's condition, which had another status until now."""
        at = stamp(self.wall())
        condition = {"type": self.rules.condition, "status": status, "reason": "SlurmHealth"}
        condition |= {"message": f"{OWN_WORDS}{move.worker}: {move.why}"}
        condition |= {"lastHeartbeatTime": at, "lastTransitionTime": at}
        self._patch(move, {"status": {"conditions": [condition]}}, of="/status", how=_MERGE)
