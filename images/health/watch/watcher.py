"""One look at all nodes, and what follows from it.

The watcher remembers nothing that matters but which drains it has lifted of late: all else is in Slurm (reports in the
nodes' comments, reasons of drains) and in Kubernetes, so it may be restarted at any point. Before each
change it reads the node's record again, and does nothing if somebody else was there meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from images.common.command import TIMED_OUT, Result
from images.common.health.report import Finding, decode
from images.common.health.slurm import RUNNING, TEST_RESERVATION, Record, Slurm, SlurmError
from images.health.node_tests.results import decode as decode_tests
from images.health.watch.decide import KUBERNETES, Action, Decision, Flapping, Kind, NodeView, Policy, decide
from images.health.watch.kubernetes import Teller
from images.health.watch.machines import Machines
from images.health.watch.release import Releaser

MOST_ACTIONS: Final = 100
"""In a round; the next one is close."""
REQUEUE_AGAIN_SECONDS: Final = 30.0
"""Jobs need a moment to end, and some cannot be requeued."""
MOST_FAILURES: Final = 3
"""Questions without an answer in one round, after which the rest waits for the next: slurmctld may be stuck."""
NO_OTHER: Final = "no other node takes jobs"


class _Views:
    """What is known about each node, from all who look: its own checks, the tests that ran on it, and its machine.

    It remembers when something came, as a node's clock may be wrong. That counts for tests above all, whose results are
    as old as the test was long: one that came while the watcher was away drains nothing, and the node is soon tested
    again.
    """

    def __init__(self, machines: Machines | None) -> None:
        self._machines = machines
        self._known: dict[tuple[str, str], tuple[int, float | None]] | None = None
        """Node and test, or no test: its report -> when it was found, and when that came; None: before the watcher."""

    def of(self, records: Sequence[Record], now: float) -> list[NodeView]:
        """The nodes with all findings."""
        before, known_now = self._known, {}
        by_machine = self._machines.findings(records, now) if self._machines is not None else {}
        views = []
        for record in records:
            findings = {}
            tests = decode_tests(record.extra)
            told = [(test, test, found.at, found.result) for test, found in tests.items()]
            if (report := decode(record.comment)) is not None:
                told += [(check, "", report.at, result) for check, result in report.results.items()]
            for name, source, at, result in told:
                known = (at, None) if before is None else before.get((record.name, source))
                arrived = known[1] if known is not None and known[0] == at else now
                known_now[record.name, source] = at, arrived
                findings[name] = Finding(result=result, at=float(at), arrived=arrived)
            if record.name in by_machine:
                findings[KUBERNETES] = by_machine[record.name]
            measured_at = max((float(test.at) for test in tests.values()), default=None)
            views.append(NodeView(**vars(record), findings=findings, measured_at=measured_at))
        self._known = known_now
        return views


@dataclass(kw_only=True)
class Watcher:
    """Looks at all nodes, decides, and acts; one round at a time."""

    slurm: Slurm
    policy: Policy
    log: Callable[[str], None]
    machines: Machines | None = None
    teller: Teller | None = None
    releaser: Releaser | None = None
    dry_run: bool = False
    wall: Callable[[], float] = time.time
    """The clock that slurmctld has too."""
    _flapping: Flapping = field(default_factory=Flapping)
    _common: frozenset[tuple[str, str]] = frozenset()
    _told: dict[tuple[Kind, str], str] = field(default_factory=dict)
    _held: frozenset[tuple[str, str, str]] = frozenset()
    _requeued: dict[str, float] = field(default_factory=dict)
    _drained: dict[str, str] = field(default_factory=dict)
    """Nodes that were drained for a check a round ago, and why."""
    _has_looked: bool = False

    def __post_init__(self) -> None:
        """Begin to look."""
        self._views = _Views(self.machines)
        self._keeps_reservations = self.policy.measures_new or self.dry_run

    def round(self) -> Decision:
        """Look once, and act. Raises SlurmError when slurmctld does not answer."""
        records = self.slurm.nodes()
        now = self.wall()
        views = self._views.of(records, now)
        self._tell_others(views, now)
        held = frozenset(view.name for view in views if self._flapping.holds(view, now))
        decision = decide(views, self.policy, now, held)
        self._tell_common(decision)
        self._tell_held(decision)
        self._forget(decision)
        failures = 0
        for action in decision.actions[:MOST_ACTIONS]:
            failures += not self._act(action)
            if failures >= MOST_FAILURES:
                break
        if not self._keeps_reservations:
            self._keeps_reservations = self._delete_reservations()
        if self.releaser is not None:
            self.releaser.saw(views, now)
        return decision

    def _delete_reservations(self) -> bool:
        """Tests are off: nobody else gives the nodes back that they have reserved. Whether none is left."""
        names = [one.name for one in self.slurm.reservations() if one.name.startswith(TEST_RESERVATION)]
        deleted = [name for name in names if self.slurm.delete_reservation(name).ok]
        for name in deleted:
            self.log(f"tests of nodes are off: deleted reservation {name}")
        return deleted == names

    def _act(self, action: Action) -> bool:
        """Do it, and tell. Whether slurmctld has answered."""
        name = action.node.name
        if self.dry_run:
            self._once(action, f"would {action.kind.value} {name}: {action.reason}")
            return True
        try:
            result = self._change(action)
        except SlurmError as error:
            result = Result(code=TIMED_OUT, stderr=str(error))
        if result is None:
            return True
        if not result.ok:
            self._once(action, f"cannot {action.kind.value} {name}: {result.message}")
            return result.code != TIMED_OUT
        self._told.pop((action.kind, name), None)
        self.log(f"{action.kind.value} {name}: {action.reason}")
        if action.kind in {Kind.DRAIN, Kind.DOWN}:
            self._drained[name] = action.reason
        if action.kind is Kind.RESUME:
            self._flapping.lifted(action.node, self.wall())
            self._drained.pop(name, None)
        if self.teller is not None:
            self.teller.acted(action, self.wall())
        return True

    def _change(self, action: Action) -> Result | None:
        """Do it; None: there is nothing to do (any more). Raises SlurmError."""
        name, slurm = action.node.name, self.slurm
        if action.kind is Kind.REQUEUE:
            return self._requeue(action)
        if not self._is_as_seen(action.node):
            return None
        if action.kind is Kind.RESUME:
            return slurm.undrain(name, action.reason)
        if action.kind is Kind.REASON:
            return slurm.update(name, reason=action.reason)
        drained = slurm.drain(name, action.reason)
        if action.kind is Kind.DRAIN or not drained.ok:
            return drained
        # First drained: a down alone ends when slurmd is heard of again, and jobs would start there.
        return slurm.update(name, state="down", reason=action.reason)

    def _is_as_seen(self, seen: NodeView) -> bool:
        """Whether nobody has changed the node since. What remains is the moment between this and the change."""
        now, same = self.slurm.node(seen.name), ("reason", "is_closed", "is_down", "is_asleep")
        return now is not None and all(getattr(now, name) == getattr(seen, name) for name in same)

    def _requeue(self, action: Action) -> Result | None:
        name, now = action.node.name, self.wall()
        if now - self._requeued.get(name, float("-inf")) < REQUEUE_AGAIN_SECONDS or not self._is_as_seen(action.node):
            return None
        self._requeued[name] = now
        jobs = sorted(filter(str.isdigit, set(self.slurm.jobs_of(name, states=RUNNING))), key=int)
        refused = []
        for job in jobs:
            result = self.slurm.requeue(job)
            if result.code == TIMED_OUT:
                return result  # slurmctld may be stuck: the other jobs would only wait as long
            if not result.ok:
                refused.append(f"job {job}: {result.message}")
        if refused:
            return Result(code=1, stderr="; ".join(refused))
        return Result(code=0) if jobs else None

    def _once(self, action: Action, line: str) -> None:
        """Log a line, unless it was the last one about this."""
        key = (action.kind, action.node.name)
        if self._told.get(key) != line:
            self._told[key] = line
            self.log(line)

    def _forget(self, decision: Decision) -> None:
        """What is no longer wished for is told again when it comes back."""
        wanted = {(action.kind, action.node.name) for action in decision.actions}
        self._told = {key: line for key, line in self._told.items() if key in wanted}
        requeued = {name for kind, name in wanted if kind is Kind.REQUEUE}
        self._requeued = {name: at for name, at in self._requeued.items() if name in requeued}

    def _tell_others(self, views: list[NodeView], now: float) -> None:
        """Tell of drains for checks that others have set or lifted: people, prologs, and the tests of nodes."""
        before, self._drained = self._drained, {}
        for view in views:
            reason = before.get(view.name)
            if view.is_drained_by_us:
                self._drained[view.name] = view.reason
                if reason is None and self._has_looked:
                    self._tell_other(Kind.DRAIN, view, f"set by others: {view.reason}", now)
            elif reason is not None and "MAINTENANCE" in view.states:
                self._drained[view.name] = reason  # it is measured again, and takes no jobs yet
            elif reason is not None and not view.is_closed:
                self._tell_other(Kind.RESUME, view, f"lifted by others: {reason}", now)
        self._has_looked = True

    def _tell_other(self, kind: Kind, view: NodeView, what: str, now: float) -> None:
        self.log(f"{view.name}: {what}")
        if self.teller is not None:
            self.teller.acted(Action(kind=kind, node=view, reason=what), now)

    def _tell_common(self, decision: Decision) -> None:
        """One alarm for each, not one a node."""
        for fault in decision.common:
            if (fault.pool, fault.check) not in self._common:
                self.log(f"ALARM: {fault}. Nothing is drained for it")
        now = frozenset((fault.pool, fault.check) for fault in decision.common)
        for pool, check in sorted(self._common - now):
            self.log(f"{check} fails on no large part of {f'pool {pool}' if pool else 'the cluster'} any more")
        self._common = now

    def _tell_held(self, decision: Decision) -> None:
        whys = {f"the limit of {self.policy.max_drained} is reached": decision.held, NO_OTHER: decision.last}
        held = frozenset(
            (why, action.node.name, action.reason.partition(":")[0])
            for why, actions in whys.items()
            for action in actions
        )
        if held != self._held:
            for why in whys:
                if waiting := sorted((name, reason) for because, name, reason in held if because == why):
                    names = ", ".join(f"{name} ({reason})" for name, reason in waiting[:20])
                    more = f", and {len(waiting) - 20} more" if len(waiting) > 20 else ""
                    self.log(f"not drained, as {why}: {names}{more}")
            if not held:
                self.log("no node waits to be drained any more")
        self._held = held
