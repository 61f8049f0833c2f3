"""Which machines are to be released for replacement, and which are taken back: what is there in, moves out.

A machine with a hardware fault, or one that a condition of the site's choice (maintenance) wants away, is cordoned once
its workers are drained for that and free of jobs; the Node says why in annotations, and in a condition if the site
names one, for a cloud's controller or a person to act on. With `evict` the workers also leave it. Machines and Nodes
are never deleted. What keeps a wrong check from hurting the cluster:

- The check must fail now, on this machine, and the drain for it must have stood for `after` seconds.
- All workers on the machine are drained by us and without jobs, and are ours; other machines are never touched.
- What somebody else has cordoned, or uncordoned after us, is left to them.
- At most `max_unavailable` machines of our workers are released or not ready at a time.

All that is needed for that is in Slurm's records and in the Node's annotations, so a restart changes nothing.
"""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from images.health.contract import Status
from images.health.reason import parse
from images.health.watch.decide import KUBERNETES
from images.health.watch.limit import Limit
from images.health.watch.machines import Machine, Place
from images.health.watch.view import SKEW_SECONDS, Finding, NodeView

RELEASE_AFTER_SECONDS: Final = 600.0
"""A fault that goes away by itself is not worth a machine."""


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What the site wants."""

    namespace: str
    """Of this cluster: what its watcher has cordoned is known by it."""
    evict: bool = False
    """Workers leave the machine; else whoever takes it sees to that."""
    max_unavailable: Limit
    after: float = RELEASE_AFTER_SECONDS
    condition: str = ""
    """Type of the condition that is set on released machines; empty: none."""
    report_only: frozenset[str] = frozenset()
    """Checks whose failure releases nothing."""


class Step(enum.Enum):
    """What can be done about a machine."""

    FORGET = "forget the past of"
    """It was not to be released again, and is well now: the ordinary rules hold again."""
    KEEP = "leave to others"
    """Somebody has uncordoned it."""
    TAKE_BACK = "take back"
    """Uncordon it: its workers are well, and in use again."""
    MARK = "mark"
    """Set the condition."""
    EVICT = "evict from"
    """Have a worker leave it."""
    RELEASE = "release"
    """Cordon it."""


@dataclass(frozen=True, kw_only=True)
class Move:
    """Something to do about a machine, if all is still as it was seen."""

    step: Step
    machine: str
    worker: str
    """Slurm node whose event tells of it; of EVICT the one that leaves."""
    check: str
    """For whose failure, as annotated: `health/gpu-xid`."""
    why: str
    """For people."""
    uid: str = ""
    """Of EVICT: the worker's pod."""

    @property
    def key(self) -> tuple[Step, str, str]:
        """The same move a round later has the same; figures in `why` may have moved."""
        return self.step, self.machine, self.worker


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to do, in this order, and what is not done though it should be."""

    moves: tuple[Move, ...] = ()
    held: tuple[Move, ...] = ()
    """Machines that wait because of `max_unavailable`."""


@dataclass(frozen=True, kw_only=True)
class Worker:
    """A worker pod, and Slurm's record of it."""

    name: str
    place: Place
    view: NodeView | None

    def fails(self, check: str, rules: Rules, now: float) -> Finding | None:
        """What the check says, if it fails now, on this machine."""
        finding = self._finding(check, now)
        failed = finding is not None and finding.result.status is Status.FAIL and check not in rules.report_only
        return finding if failed else None

    def passes(self, check: str, now: float) -> bool:
        """Whether the check passes on this machine."""
        finding = self._finding(check, now)
        return finding is not None and finding.result.status is Status.OK

    def is_free(self) -> bool:
        """Whether it is kept free of jobs by us, and has none."""
        return self.view is not None and self.view.is_drained_by_us and self.view.is_quiet and not self.place.leaving

    def cause(self, rules: Rules, now: float) -> tuple[str, float] | None:
        """The check for which its machine should be released, and since when; None: there is none."""
        view = self.view
        if view is None or view.own is None or view.reason_at is None or self.place.started is None:
            return None
        since = max(view.reason_at, self.place.started)
        unwanted = self.fails(KUBERNETES, rules, now)
        if unwanted is not None and unwanted.unwanted_since is not None:
            return KUBERNETES, max(since, unwanted.unwanted_since)
        failing = self.fails(view.own.check, rules, now)
        if view.own.fault == "hardware" and failing is not None and failing.result.fault == "hardware":
            return view.own.check, since
        return None

    def _finding(self, check: str, now: float) -> Finding | None:
        """What the check says, if it has looked since the worker is on this machine: its record outlives its pods."""
        finding = None if self.view is None else self.view.findings.get(check)
        if finding is None or self.place.started is None or not finding.is_fresh(now):
            return None
        return finding if finding.at > self.place.started + SKEW_SECONDS else None


def plan(
    views: Iterable[NodeView], pods: Mapping[str, Place], machines: Mapping[str, Machine], rules: Rules, now: float
) -> Plan:
    """`pods`: all worker pods of this cluster. `now`: seconds since 1970."""
    by_name = {view.name: view for view in views}
    on_machine: dict[str, list[Worker]] = defaultdict(list)
    for name, place in sorted(pods.items()):
        if place.node:
            on_machine[place.node].append(Worker(name=name, place=place, view=by_name.get(name)))
    moves: list[Move] = []
    wishes: list[tuple[float, Move]] = []
    for name, machine in sorted(machines.items()):
        workers = on_machine.get(name, [])
        if machine.is_released_by(rules.namespace):
            moves += _about_released(name, machine, workers, rules, now)
        elif machine.keep:
            moves += _about_kept(name, machine, workers, now)
        elif not machine.cordoned and not machine.released_for:
            wishes += _wish(name, workers, rules, now)
    released, held = _within_limit([move for _, move in sorted(wishes, key=_order)], on_machine, pods, machines, rules)
    order = list(Step)
    moves = sorted([*moves, *released], key=lambda move: order.index(move.step))
    return Plan(moves=tuple(moves), held=tuple(held))


def _order(wish: tuple[float, Move]) -> tuple[float, str]:
    since, move = wish
    return since, move.machine


def _about_released(name: str, machine: Machine, workers: list[Worker], rules: Rules, now: float) -> Iterable[Move]:
    """What should be done about a machine that we have released."""
    told_by = machine.released_by.partition("/")[2]
    check = machine.released_for

    def move(step: Step, why: str, worker: str = told_by, uid: str = "") -> Move:
        return Move(step=step, machine=name, worker=worker, check=check, why=why, uid=uid)

    if not machine.cordoned:
        return [move(Step.KEEP, f"somebody has uncordoned it, though it was released for {check}")]
    if _is_well(workers, check, now):
        return [move(Step.TAKE_BACK, f"{check} is well again, and its workers take jobs")]
    if machine.keep:
        return []
    moves = []
    own = parse(check)
    heals = own is not None and any(worker.passes(own.check, now) for worker in workers)
    if rules.condition and rules.condition not in machine.conditions and not heals:
        reasons = [worker.view.reason for worker in workers if worker.name == told_by and worker.view is not None]
        moves.append(move(Step.MARK, next(iter(reasons), "") or check))
    if rules.evict:
        for worker in workers:
            view = worker.view
            if worker.is_free() and view is not None and view.own and worker.fails(view.own.check, rules, now):
                moves.append(move(Step.EVICT, view.reason, worker.name, worker.place.uid))
    return moves


def _about_kept(name: str, machine: Machine, workers: list[Worker], now: float) -> Iterable[Move]:
    """What should be done about a machine that is not to be released."""
    if not _is_well(workers, machine.keep, now):
        return []
    why = f"{machine.keep} is well there: it may be released again"
    return [Move(step=Step.FORGET, machine=name, worker=workers[0].name, check=machine.keep, why=why)]


def _is_well(workers: list[Worker], annotated: str, now: float) -> bool:
    """Whether the check passes on a machine, as far as its workers have it, and all of them take jobs."""
    own = parse(annotated)
    if own is None or not all(worker.view is not None and worker.view.takes_jobs for worker in workers):
        return False
    passing = [worker for worker in workers if worker.passes(own.check, now)]
    others = [worker for worker in workers if worker not in passing]
    return bool(passing) and all(worker.view is not None and own.check not in worker.view.findings for worker in others)


def _wish(name: str, workers: list[Worker], rules: Rules, now: float) -> Iterable[tuple[float, Move]]:
    """Whether the machine should be released, limits aside, and since when there is a reason to."""
    if not all(worker.is_free() for worker in workers):
        return []
    causes = [(cause[1], worker, cause[0]) for worker in workers if (cause := worker.cause(rules, now)) is not None]
    if not causes:
        return []
    since, worker, check = min(causes, key=lambda cause: (cause[0], cause[1].name))
    if now - since < rules.after or worker.view is None:
        return []
    why = worker.view.findings[check].result.message
    return [(since, Move(step=Step.RELEASE, machine=name, worker=worker.name, check=f"health/{check}", why=why))]


def _within_limit(
    wishes: list[Move],
    on_machine: Mapping[str, list[Worker]],
    pods: Mapping[str, Place],
    machines: Mapping[str, Machine],
    rules: Rules,
) -> tuple[list[Move], list[Move]]:
    """What may be released now, and what has to wait.

    Workers that have no machine count too: theirs may be gone, and with it all that told of it. One that waits because
    its machine is released is not counted twice.
    """
    released = {name for name, machine in machines.items() if machine.is_released_by(rules.namespace)}
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
