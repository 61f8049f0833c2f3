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
from dataclasses import dataclass, field
from typing import Any, Final

from images.common.health.contract import Status
from images.common.health.report import SKEW_SECONDS, stamp
from images.common.health.slurm import Slurm
from images.common.kubernetes import Kube, KubeError
from images.health.watch.decide import KUBERNETES, Limit, NodeView, breaks_machine
from images.health.watch.machines import OWN_WORDS, RELEASED_FOR, Machine, Machines, Place, machine_of

PAUSE_SECONDS: Final = 30.0
"""Between two times that anything is changed: the copy of the cluster shows the first by then."""


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What the site wants."""

    max_unavailable: Limit
    after: float
    """Seconds that a drain has to stand: a fault that goes away by itself is not worth a machine."""
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
    for name, workers in on_machine.items():
        machine = machines.get(name)
        if machine is None or machine.cordoned:
            continue
        if not machine.released_for:
            wishes += _wish(name, workers, pods, rules, now)
        elif all(view is not None and view.takes_jobs for view in workers.values()):
            why = f"it was released for {machine.released_for}, and its workers take jobs again"
            moves.append(Move(machine=name, worker=min(workers), why=why))
    # Workers that have no machine count too: theirs may be gone, and with it all that told of it.
    ours = {*on_machine, *(name for name, machine in machines.items() if machine.is_released)}
    well = sum(machines[name].ready == "True" and not machines[name].is_released for name in ours & machines.keys())
    allowed = rules.max_unavailable.of(len(ours)) - (len(ours) - well) - sum(not place.node for place in pods.values())
    held: list[Move] = []
    for _, move in sorted(wishes, key=lambda wish: (wish[0], wish[1].machine)):  # the oldest first
        more = machines[move.machine].ready == "True"  # else it counts already
        (moves if allowed >= more else held).append(move)
        allowed -= more
    return moves, held


def _wish(
    name: str, workers: Mapping[str, NodeView | None], pods: Mapping[str, Place], rules: Rules, now: float
) -> list[tuple[float, Move]]:
    """Since when the machine should be released, limits aside; nothing: it should not."""
    views = [view for view in workers.values() if view is not None and view.is_drained_by_us and view.is_quiet]
    causes = [(since, check, view) for view in views for since, check in _causes(view, pods[view.name], rules, now)]
    if len(views) < len(workers) or not causes:
        return []
    since, check, view = min(causes, key=lambda cause: (cause[0], cause[2].name, cause[1]))
    why = f"health/{check}: {view.findings[check].result.message}"
    move = Move(machine=name, worker=view.name, check=check, why=why)
    return [(since, move)] if now - since >= rules.after else []


def _causes(view: NodeView, place: Place, rules: Rules, now: float) -> list[tuple[float, str]]:
    """Since when its machine should be released, and the checks that want it.

    Only what was found since pod and slurmd have started there counts: the record outlives its pods, which change
    machines, and tells of the slurmd before until the new one registers.
    """
    if place.started is None:
        return []
    began = max(view.started_at, place.started)
    causes = []
    for check, finding in view.findings.items():
        fails = finding.result.status is Status.FAIL and finding.at > began + SKEW_SECONDS and finding.is_fresh(now)
        if not fails or check in rules.report_only:
            continue
        if check == KUBERNETES and finding.unwanted_since is not None:
            return [(max(began, view.drained_since(check), finding.unwanted_since), check)]
        if breaks_machine(check, finding):
            causes.append((max(began, view.drained_since(check)), check))
    return causes


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
    _problems: list[str] = field(default_factory=list)

    def release(self, views: Sequence[NodeView], now: float) -> Sequence[str]:
        """The nodes as they are. Returns what stands in the way of releases. Raises SlurmError."""
        if not self.copies.synced or now - self._tried_at < PAUSE_SECONDS:
            return self._problems
        moves, held = plan(views, self.copies.pods.values(), self.copies.nodes.values(), self.rules, now)
        limit = f"no more than {self.rules.max_unavailable} may be unavailable"
        self._problems = [f"not released, as {limit}: {one.machine}" for one in held]
        for move in moves:
            self._tried_at = now
            try:
                if self._move(move, {view.name: view for view in views}):
                    self.log(str(move))
            except (KubeError, OSError, ValueError) as error:
                self._problems.append(f"cannot {move}: {error}")
        return self._problems

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

    def _patch(
        self, move: Move, change: Mapping[str, Any], of: str = "", how: str = "application/merge-patch+json"
    ) -> None:
        self.kube.send("PATCH", f"/api/v1/nodes/{move.machine}{of}", change, how)

    def _set_condition(self, move: Move, status: str) -> None:
        """Set the site's condition, which had another status until now."""
        at = stamp(self.wall())
        condition = {"type": self.rules.condition, "status": status, "reason": "SlurmHealth"}
        condition |= {"message": f"{OWN_WORDS}{move.worker}: {move.why}"}
        condition |= {"lastHeartbeatTime": at, "lastTransitionTime": at}
        # By their types: those that kubelet writes stay.
        self._patch(move, {"status": {"conditions": [condition]}}, "/status", "application/strategic-merge-patch+json")
