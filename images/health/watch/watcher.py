"""One look at all nodes, and what follows from it.

The watcher remembers nothing that matters but which drains it has lifted of late, and since when checks fail: all else
is in Slurm (reports in the nodes' comments, reasons of drains) and in Kubernetes, so it may be restarted at any point.
Before each change it reads the node's record again, and does nothing if somebody else was there meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from images.common.command import TIMED_OUT, Result
from images.common.health.contract import FaultClass, Status
from images.common.health.report import Finding, decode
from images.common.health.slurm import Record, Slurm, SlurmError
from images.health.node_tests.results import decode as decode_tests
from images.health.watch.decide import KUBERNETES, Action, Decision, Flapping, Kind, NodeView, Policy, decide
from images.health.watch.machines import Machines
from images.health.watch.release import Releaser

REQUEUE_AGAIN_SECONDS: Final = 30.0
"""Jobs need a moment to end, and some cannot be requeued."""


@dataclass(kw_only=True)
class Watcher:
    """Looks at all nodes, decides, and acts; one round at a time."""

    slurm: Slurm
    policy: Policy
    log: Callable[[str], None]
    machines: Machines | None = None
    releaser: Releaser | None = None
    wall: Callable[[], float] = time.time
    """The clock that slurmctld has too."""
    _flapping: Flapping = field(default_factory=Flapping)
    _common: frozenset[tuple[str, str]] = frozenset()
    _told: dict[tuple[Kind, str], str] = field(default_factory=dict)
    _held: frozenset[tuple[str, str]] = frozenset()
    _requeued: dict[str, float] = field(default_factory=dict)
    _began: dict[str, Mapping[tuple[str, FaultClass | None], float]] = field(default_factory=dict)
    """Since when what fails on each node has been seen to fail."""

    def round(self) -> Decision:
        """Look once, and act. Raises SlurmError when slurmctld does not answer."""
        records = self.slurm.nodes()
        now = self.wall()
        views = self._views(records, now)
        unsettled = frozenset(view.name for view in views if self._flapping.holds(view, now))
        decision = decide(views, self.policy, now, unsettled)
        self._tell_common(decision)
        self._tell_held(decision)
        self._forget(decision)
        for action in decision.actions:
            self._act(action)
        if self.releaser is not None:
            self.releaser.saw(views, now)
        return decision

    def _views(self, records: Sequence[Record], now: float) -> list[NodeView]:
        """What is known about each node, from all who look: its own checks, the tests that ran on it, its machine."""
        by_machine = self.machines.findings(records, now) if self.machines is not None else {}
        views, before = [], self._began
        self._began = {}
        for record in records:
            tests, report = decode_tests(record.extra), decode(record.comment)
            findings = {test: Finding(result=found.result, at=float(found.at)) for test, found in tests.items()}
            if report is not None:
                at = float(report.at)
                findings |= {check: Finding(result=result, at=at) for check, result in report.results.items()}
            if record.name in by_machine:
                findings[KUBERNETES] = by_machine[record.name]
            failing = {
                (check, finding.result.fault): before.get(record.name, {}).get((check, finding.result.fault), now)
                for check, finding in findings.items()
                if finding.result.status is Status.FAIL and finding.is_fresh(now)
            }
            self._began[record.name] = failing
            views.append(NodeView(**vars(record), findings=findings, began=failing))
        return views

    def _act(self, action: Action) -> None:
        """Do it, and tell. Raises SlurmError."""
        name = action.node.name
        result = self._change(action)
        if result is None:
            return
        if result.code == TIMED_OUT:
            raise SlurmError(result.message)  # it may be stuck: the other nodes would only wait as long
        key = (action.kind, name)
        if result.ok:
            self._told.pop(key, None)
            self.log(f"{action.kind.value} {name}: {action.reason}")
            if action.kind is Kind.RESUME:
                self._flapping.lifted(action.node, self.wall())
        elif self._told.get(key) != result.message:
            self._told[key] = result.message
            self.log(f"cannot {action.kind.value} {name}: {result.message}")

    def _change(self, action: Action) -> Result | None:
        """Do it; None: there is nothing to do (any more). Raises SlurmError."""
        name, slurm = action.node.name, self.slurm
        if action.kind is Kind.REQUEUE:
            return self._requeue(action)
        if not self._is_as_seen(action.node):
            return None
        if action.kind is Kind.RESUME:
            return slurm.undrain(name, action.reason)
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
        jobs = sorted(filter(str.isdigit, set(self.slurm.jobs_of(name))), key=int)
        results = {job: self.slurm.requeue(job) for job in jobs}
        refused = [f"job {job}: {result.message}" for job, result in results.items() if not result.ok]
        if refused:
            return Result(code=1, stderr="; ".join(refused))
        return Result(code=0) if jobs else None

    def _forget(self, decision: Decision) -> None:
        """What is no longer wished for is told again when it comes back."""
        wanted = {(action.kind, action.node.name) for action in decision.actions}
        self._told = {key: line for key, line in self._told.items() if key in wanted}
        self._requeued = {name: at for name, at in self._requeued.items() if (Kind.REQUEUE, name) in wanted}

    def _tell_common(self, decision: Decision) -> None:
        """One alarm for each, not one a node."""
        for fault in decision.common:
            if (fault.pool, fault.check) not in self._common:
                self.log(f"ALARM: {fault}. Nothing is drained for it")
        self._common = frozenset((fault.pool, fault.check) for fault in decision.common)

    def _tell_held(self, decision: Decision) -> None:
        held = frozenset((action.node.name, action.reason.partition(":")[0]) for action in decision.held)
        if held - self._held:
            names = ", ".join(f"{name} ({reason})" for name, reason in sorted(held))
            why = f"the limit of {self.policy.max_drained} is reached, or no other node takes jobs"
            self.log(f"not drained, as {why}: {names}")
        self._held = held
