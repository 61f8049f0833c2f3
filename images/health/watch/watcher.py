"""health-watch: drains nodes whose checks fail, and resumes them, within a limit over the whole cluster.

A pod of its own, of which there must be one at a time. SETTINGS has its settings as JSON (`watch_settings` in
slurm/health.py; config/sections/health.py says what each means). The rights that the ServiceAccount needs, in the
cluster's namespace (a Role) and for Nodes (a ClusterRole):

machines.follow              namespace: `list`, `watch`, `delete` of pods; Nodes: `get`, `list`, `watch`
machines.release             Nodes: `patch` of nodes
machines.release_condition   Nodes: `patch` of nodes/status

The watcher remembers nothing that matters but since when checks fail: all else is in Slurm (reports in the nodes'
comments, reasons of drains) and in Kubernetes, so it may be restarted at any point. Before each change it reads the
node's record again, and does nothing if somebody else was there meanwhile.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from images.common.command import TIMED_OUT, Result
from images.common.health.contract import FaultClass, Status
from images.common.health.report import Finding, decode
from images.common.health.slurm import Record, Slurm, SlurmError, keep_looking
from images.common.kubernetes import Kube, own_namespace
from images.common.log import Log
from images.common.process import end_on_sigterm, end_with_threads
from images.common.wait import Clock
from images.health.node_tests.catalog import TESTS
from images.health.watch.decide import KUBERNETES, Action, Kind, Limit, NodeView, Policy, decide
from images.health.watch.lost import keep_ending_lost
from images.health.watch.machines import Machines, follow_machines
from images.health.watch.release import Releaser, Rules

POLL_SECONDS: Final = 2.0
LONGEST_POLL_SECONDS: Final = 10.0

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
    _logged: frozenset[str] = frozenset()
    """What was complained of in the last round, and in this one."""
    _requeued: dict[str, tuple[float, str]] = field(default_factory=dict)
    """When the jobs of a node were requeued the last time, and what Slurm refused."""
    _began: dict[str, Mapping[tuple[str, FaultClass | None], float]] = field(default_factory=dict)
    """Since when what fails on each node has been seen to fail."""

    def round(self) -> None:
        """Look once, and act. Raises SlurmError when slurmctld does not answer."""
        records = self.slurm.nodes()
        now = self.wall()
        views = self._views(records, now)
        decision = decide(views, self.policy, now)
        complaints = {
            f"{pool}/{check}": f"ALARM: {fault}. Nothing is drained for it"
            for (pool, check), fault in decision.common.items()
        }
        why = f"not drained, as the limit of {self.policy.max_drained} is reached, or no other node takes jobs"
        for action in decision.held:
            about = f"{action.node.name} ({action.reason.partition(':')[0]})"
            complaints[about] = f"{why}: {about}"
        self._log_once(complaints)  # before anything that slurmctld may not do, for as long as it is stuck
        problems = [problem for action in decision.actions if (problem := self._act(action))]
        if self.releaser is not None:
            problems += self.releaser.release(views, now)
        self._log_once({problem: problem for problem in problems})
        self._logged = frozenset({*complaints, *problems})

    def _log_once(self, complaints: Mapping[str, str]) -> None:
        """Log what is complained of, once until it is over. By what it is about: a line may have figures that move."""
        for key, line in complaints.items():
            if key not in self._logged:
                self.log(line)
        self._logged |= complaints.keys()

    def _views(self, records: Sequence[Record], now: float) -> list[NodeView]:
        """What is known about each node, from all who look: its own checks, the tests that ran on it, its machine."""
        by_machine = self.machines.findings(records, now) if self.machines is not None else {}
        views, before = [], self._began
        self._began = {}
        for record in records:
            findings, report = record.tests, decode(record.comment)
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

    def _act(self, action: Action) -> str:
        """Do it: what stands in the way, empty if nothing. Raises SlurmError."""
        name, seen, slurm = action.node.name, action.node, self.slurm
        at, refused = self._requeued.get(name, (float("-inf"), ""))
        if action.kind is Kind.REQUEUE and self.wall() - at < REQUEUE_AGAIN_SECONDS:
            return refused
        now, same = slurm.node(name), ("reason", "is_closed", "is_down", "is_asleep")
        # What remains is the moment between this look and the change.
        if now is None or any(getattr(now, each) != getattr(seen, each) for each in same):
            return ""
        if action.kind is Kind.REQUEUE:
            return self._requeue(name, action.reason)
        if action.kind is Kind.RESUME:
            done = slurm.undrain(name, action.reason)
        else:
            done = slurm.drain(name, action.reason)
            # First drained: a down alone ends when slurmd is heard of again, and jobs would start there.
            if action.kind is Kind.DOWN and done.ok:
                done = slurm.update(name, state="down", reason=action.reason)
        if done.code == TIMED_OUT:
            raise SlurmError(done.message)  # it may be stuck: the other nodes would only wait as long
        if not done.ok:
            return f"cannot {action.kind.value} {name}: {done.message}"
        self.log(f"{action.kind.value} {name}: {action.reason}")
        return ""

    def _requeue(self, name: str, reason: str) -> str:
        """Have the jobs of a node start again elsewhere: what Slurm has refused. Raises SlurmError."""
        now, jobs = self.wall(), sorted(filter(str.isdigit, set(self.slurm.jobs_of(name))), key=int)
        results: dict[str, Result] = {job: self.slurm.requeue(job) for job in jobs}
        refused = "; ".join(f"job {job}: {result.message}" for job, result in results.items() if not result.ok)
        problem = f"cannot requeue {name}: {refused}" if refused else ""
        self._requeued[name] = now, problem
        if jobs and not refused:
            self.log(f"requeue {name}: {reason}")
        return problem


def build(settings: Mapping[str, Any], env: Mapping[str, str], log: Callable[[str], None]) -> Watcher:
    """The watcher as the site wants it."""
    wanted, slurm, report_only = settings["machines"], Slurm(), frozenset(settings["report_only"])
    releases = wanted["release"] != "none"
    policy = Policy(
        max_drained=Limit.parse(settings["max_drained"]),
        # Without tests of nodes what they have drained is lifted.
        report_only=report_only | (frozenset() if settings["tests"] else TESTS.keys()),
        requeue_after=wanted["requeue_after"],
        frees_broken=releases,
    )
    kube = Kube.in_cluster(own_namespace(env), env) if wanted["follow"] else None
    if kube is None:
        log("nodes are watched by Slurm's records alone")
        return Watcher(slurm=slurm, policy=policy, log=log)
    machines = follow_machines(kube, frozenset(wanted["drain_conditions"]), log)
    rules = Rules(
        max_unavailable=Limit.parse(wanted["max_unavailable"]),
        after=wanted["release_after"],
        condition=wanted["release_condition"] or "",
        report_only=report_only,
    )
    releaser = Releaser(kube=kube, slurm=slurm, copies=machines, rules=rules, log=log) if releases else None
    return Watcher(slurm=slurm, policy=policy, log=log, machines=machines, releaser=releaser)


def main() -> int:
    """Entry point."""
    end_on_sigterm()
    log = Log("health-watch")
    end_with_threads(log)
    watcher = build(json.loads(os.environ["SETTINGS"]), os.environ, log)
    kube = Kube.in_cluster(own_namespace())
    if kube is not None and watcher.machines is not None:
        threading.Thread(target=keep_ending_lost, args=(kube, watcher.machines, log), daemon=True, name="lost").start()
    keep_looking(watcher.round, POLL_SECONDS, LONGEST_POLL_SECONDS, log, Clock())
    return 0
