"""What is to be done about each node: nodes in, actions out. Nothing here asks or changes anything.

The rules, of which each keeps a wrong check from hurting the cluster:

- Only a failure that is fresh drains. What is old, unknown or `not checked` changes nothing, in either direction.
- A drain is lifted only if its reason is ours, and only by the same check, well again, looked at after the drain.
- A node that anybody else has drained, or set down, is left alone, and so is its reason.
- Where nodes are measured by tests, one that may be another machine now is measured before it takes jobs.
- A check that fails again and again has to be well for a while first (`flapping.py`).
- At most `max_drained` nodes are drained by checks at a time, and never the last node that takes jobs: a shared file
  system that is slow makes all nodes fail at once.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from images.health.contract import Result, Status
from images.health.watch.limit import Limit
from images.health.watch.reason import NEW_MACHINE, Own, gravity, lifted, parse, reason_for, to_be_measured

SKEW_SECONDS: Final = 5.0
"""How far the clock of a node may be from slurmctld's before its times are not compared with slurmctld's."""

STALE_SECONDS: Final = 660.0
"""A node writes its report when it changes and every 5 minutes. After two of those and a minute nobody knows."""

KUBERNETES: Final = "kubernetes"
"""The check that the watcher does itself: the machine, as Kubernetes sees it."""

_DOWN: Final = frozenset({"DOWN", "ERROR"})
_CLOSED: Final = frozenset({"DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING"})
_ASLEEP: Final = frozenset(
    {
        "FUTURE",
        "INVALID",
        "INVALID_REG",
        "POWERED_DOWN",
        "POWERING_DOWN",
        "POWERING_UP",
        "POWER_DOWN",
        "POWER_DRAIN",
        "POWER_UP",
        "REBOOT_ISSUED",
        "UNKNOWN",
    }
)
"""Nodes that take no job just now for a reason of Slurm's own. Draining one that is being powered up would kill its
jobs (24.11 and 26.05, `update_node`); the pod of one that sleeps is gone, and nobody misses it."""
_ABSENT: Final = frozenset({"FUTURE", "POWERED_DOWN"})
"""Nodes that do not count when a limit is a part of all nodes."""
_BUSY: Final = frozenset({"ALLOCATED", "MIXED"})
_ENDING: Final = "COMPLETING"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What a check says about a node."""

    result: Result
    at: float
    """When it looked, in seconds since 1970, by its own clock."""
    arrived: float | None = None
    """When the watcher saw this come, by slurmctld's clock; None: it was there when the watcher started."""
    declared: bool = False
    """Somebody wants the node free of jobs and said so. No limit holds that back, unless it is a condition that says so
    (`unwanted_since`): programs set these, and may set them on all machines at once."""
    lost: bool = False
    """The machine is gone: its jobs are to start elsewhere now."""
    unwanted_since: float | None = None
    """Since when a condition that the site has named (maintenance) wants the machine away, in seconds since 1970; None:
    none does."""

    def is_fresh(self, now: float) -> bool:
        """Whether it says something about now. A node whose clock is wrong is believed by when its report came."""
        own = self.at if self.at <= now + SKEW_SECONDS else float("-inf")
        return now - max(own, float("-inf") if self.arrived is None else self.arrived) <= STALE_SECONDS

    def clears(self, drained_at: float | None, now: float) -> bool:
        """Whether it says that all is well, having looked after the drain.

        `arrived` says nothing about that: what comes after a drain may have been found before it.
        """
        if drained_at is None or self.result.status is not Status.OK or not self.is_fresh(now):
            return False
        return drained_at + SKEW_SECONDS < self.at <= now + SKEW_SECONDS


@dataclass(frozen=True, kw_only=True)
class NodeView:
    """A node as Slurm has it on record, and what is known about its health."""

    name: str
    states: frozenset[str]
    reason: str = ""
    reason_at: float | None = None
    """When the reason was set, in seconds since 1970, by slurmctld's clock."""
    findings: Mapping[str, Finding] = field(default_factory=dict)
    started_at: float | None = None
    """When its slurmd started, in seconds since 1970: before that it may have been another machine."""
    measured_at: float | None = None
    """When a test of nodes last ran there; None: none is on record."""

    @property
    def is_unmeasured(self) -> bool:
        """Whether no test of nodes has run on what may be another machine than before."""
        return self.measured_at is None or (self.started_at is not None and self.measured_at < self.started_at)

    @property
    def is_closed(self) -> bool:
        """Somebody keeps jobs from it: drained, failing or down."""
        return bool(self.states & (_CLOSED | _DOWN))

    @property
    def is_down(self) -> bool:
        """Slurm has given it up: it has no jobs."""
        return bool(self.states & _DOWN)

    @property
    def own(self) -> Own | None:
        """What the reason says, if this watcher, or a check, has closed the node. A reason may outlive its drain."""
        return parse(self.reason) if self.is_closed and not self.states & {"FAIL", "FAILING"} else None

    @property
    def is_drained_by_us(self) -> bool:
        """Kept from jobs by a drain of this watcher, or of a check; not by a mere down, which Slurm lifts by itself."""
        return self.own is not None and "DRAIN" in self.states and not self.is_asleep

    @property
    def takes_jobs(self) -> bool:
        """Whether a user's job could start on it."""
        return not (self.is_closed or self.is_asleep or "NOT_RESPONDING" in self.states or self.is_under_retest)

    @property
    def is_under_retest(self) -> bool:
        """Reserved and not drained, though something has failed there: a test is run again (`node_tests/retest.py`).

        If that fails the node is drained as before, so its place is kept.
        """
        failed = any(finding.result.status is Status.FAIL for finding in self.findings.values())
        return failed and "MAINTENANCE" in self.states and not self.is_closed

    @property
    def is_asleep(self) -> bool:
        """Slurm does not use it at present, on purpose. One that is merely silent is not asleep."""
        return bool(self.states & _ASLEEP)

    @property
    def is_declared(self) -> bool:
        """A person wants it free of jobs, and said so."""
        return any(finding.declared and finding.unwanted_since is None for finding in self.findings.values())

    @property
    def has_jobs(self) -> bool:
        """Whether jobs run on it."""
        return bool(self.states & _BUSY)

    @property
    def is_quiet(self) -> bool:
        """Whether no job is on it, not even one that is ending."""
        return not self.has_jobs and _ENDING not in self.states


class Kind(enum.Enum):
    """What can be done about a node."""

    RESUME = "resume"
    """Lift the drain."""
    REASON = "reason"
    """Keep it drained for something else."""
    DRAIN = "drain"
    """Let no new job start; running ones go on."""
    DOWN = "down"
    """Drain it, and have its jobs start elsewhere: the machine is gone."""
    REQUEUE = "requeue"
    """Have its jobs start elsewhere: the time to end is over."""


@dataclass(frozen=True, kw_only=True)
class Action:
    """Something to do about a node, if it is still as it was seen."""

    kind: Kind
    node: NodeView
    reason: str
    """The new reason; of RESUME what takes its place; of REQUEUE the present one."""


@dataclass(frozen=True, kw_only=True)
class Policy:
    """What the site wants."""

    max_drained: Limit
    report_only: frozenset[str] = frozenset()
    """Checks whose failure is told and drains nothing. A drain for one of them is lifted."""
    requeue_after: float | None = None
    """Seconds that jobs may go on, on a node whose machine is wanted free, until they are requeued; None: to their
    end."""
    frees_broken: bool = False
    """A machine with a hardware fault is wanted free too: it is to be released for replacement."""
    measures_new: bool = False
    """Tests of nodes run: what was drained for its machine, and may be another one now, is measured before it takes
    jobs. Those tests lift the drain then."""


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What to do, in this order, and what is not done though it should be."""

    actions: tuple[Action, ...] = ()
    held: tuple[Action, ...] = ()
    """What waits because the limit is reached."""


def decide(nodes: Iterable[NodeView], policy: Policy, now: float, unsettled: frozenset[str] = frozenset()) -> Decision:
    """`now`: seconds since 1970, by slurmctld's clock. `unsettled`: nodes whose drain is not to be lifted yet."""
    nodes = list(nodes)
    wishes = [
        action for node in nodes if (action := _wish(node, policy, now, settled=node.name not in unsettled)) is not None
    ]
    free = [action for action in wishes if action.kind in {Kind.RESUME, Kind.REASON, Kind.REQUEUE}]
    # In the order in which the room under the limit is given away, for all to be able to tell.
    closing = sorted(
        (action for action in wishes if action.kind in {Kind.DRAIN, Kind.DOWN}),
        key=lambda action: (
            action.kind is not Kind.DOWN,
            not action.node.is_declared,
            -_gravity_of(action),
            action.node.name,
        ),
    )
    granted, held = _within_limit(closing, nodes, policy)
    order = list(Kind)
    actions = sorted([*free, *granted], key=lambda action: (order.index(action.kind), action.node.name))
    return Decision(actions=tuple(actions), held=tuple(held))


def _wish(node: NodeView, policy: Policy, now: float, *, settled: bool) -> Action | None:
    """What should be done about this node alone, limits aside."""
    failing = _failing(node, policy, now)
    if node.own is not None:
        return _about_own(node, node.own, failing, policy, now, settled=settled)
    if not failing or node.is_closed or node.is_asleep:
        return None
    check = _gravest(failing)
    reason = reason_for(check, failing[check].result)
    if failing[check].lost:
        return Action(kind=Kind.DOWN, node=node, reason=reason)
    return Action(kind=Kind.DRAIN, node=node, reason=reason)


def _about_own(
    node: NodeView, own: Own, failing: Mapping[str, Finding], policy: Policy, now: float, *, settled: bool
) -> Action | None:
    """What should be done about a node that is closed for a check."""
    worst = _gravest(failing) if failing else None
    lost = worst is not None and failing[worst].lost
    # Without jobs there is nothing to save, and the reason says what has to be well before jobs start there again.
    if worst is not None and lost and not (node.is_down or node.is_asleep or node.is_quiet):
        return Action(kind=Kind.DOWN, node=node, reason=reason_for(worst, failing[worst].result))
    finding = node.findings.get(own.check)
    # The site has said so since.
    unwanted = own.check in policy.report_only or (own.check == NEW_MACHINE and not policy.measures_new)
    cleared = unwanted or (settled and finding is not None and finding.clears(node.reason_at, now))
    broken = policy.frees_broken and own.fault == "hardware"
    if cleared and worst is None:
        return _well(node, own, measures=policy.measures_new and not unwanted)
    if worst not in {None, own.check}:
        result = failing[worst].result
        # With a deadline for its jobs, the reason has to say since when that runs.
        counts = failing[worst].declared and policy.requeue_after is not None and not broken
        graver = own.check != KUBERNETES and gravity(result.fault) > gravity(own.fault)
        if cleared or counts or graver or own.check == NEW_MACHINE:
            return Action(kind=Kind.REASON, node=node, reason=reason_for(worst, result))
    if worst is not None and worst == own.check and gravity(failing[worst].result.fault) > gravity(own.fault):
        return Action(kind=Kind.REASON, node=node, reason=reason_for(worst, failing[worst].result))
    overdue = policy.requeue_after is not None and now - (node.reason_at or now) >= policy.requeue_after
    if (own.check == KUBERNETES or broken) and own.check in failing and overdue and node.has_jobs:
        return Action(kind=Kind.REQUEUE, node=node, reason=node.reason)
    return None


def _well(node: NodeView, own: Own, *, measures: bool) -> Action:
    """What should be done about a node of ours that is well again. `measures`: it may have to be measured first."""
    # It was drained for its machine, and may be another one now.
    new = node.is_unmeasured and (own.check == KUBERNETES or own.fault == "hardware")
    if measures and new:
        return Action(kind=Kind.REASON, node=node, reason=to_be_measured(node.reason))
    return Action(kind=Kind.RESUME, node=node, reason=lifted(node.reason))


def _failing(node: NodeView, policy: Policy, now: float) -> dict[str, Finding]:
    return {
        check: finding
        for check, finding in node.findings.items()
        if finding.result.status is Status.FAIL and finding.is_fresh(now) and check not in policy.report_only
    }


def _gravest(failing: Mapping[str, Finding]) -> str:
    """The check to name: a lost machine, else what is declared, else the gravest; of equals the first by name."""

    def key(check: str) -> tuple[bool, bool, int, str]:
        finding = failing[check]
        return not finding.lost, not finding.declared, -gravity(finding.result.fault), check

    return min(failing, key=key)


def _within_limit(closing: list[Action], nodes: list[NodeView], policy: Policy) -> tuple[list[Action], list[Action]]:
    """What may be closed now, and what has to wait.

    Nodes that will be resumed in this round still count: that may fail, and the next round is two seconds away. Nodes
    that somebody wants free do not: while machines are upgraded one after the other, a broken GPU is still drained for.
    Nodes that are measured again count as drained, which they are again if they fail: what was found there is old then.
    Nodes that are set down are counted by themselves too, as that ends jobs, and so may hit drained nodes as well.
    """
    limit = policy.max_drained.of(sum(1 for node in nodes if not node.states & _ABSENT))
    wished = {action.node.name for action in closing}
    retested = sum(1 for node in nodes if node.is_under_retest and node.name not in wished)
    drained = retested + sum(1 for node in nodes if node.own is not None and not node.is_declared)
    down = sum(1 for node in nodes if node.own is not None and node.is_down)
    usable = sum(1 for node in nodes if node.takes_jobs)
    granted: list[Action] = []
    held: list[Action] = []
    for action in closing:
        declared = action.node.is_declared
        new = action.node.own is None and not declared
        if action.kind is Kind.DOWN:
            # Its jobs are lost already; whether it is the last node does not matter to them.
            allowed = down < limit and (not new or drained < limit)
        else:
            allowed = declared or (drained < limit and usable - action.node.takes_jobs >= 1)
        (granted if allowed else held).append(action)
        if allowed:
            down += action.kind is Kind.DOWN
            drained += new
            usable -= action.node.takes_jobs
    return granted, held


def _gravity_of(action: Action) -> int:
    own = parse(action.reason)
    return gravity(own.fault if own else None)
