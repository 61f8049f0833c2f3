"""What is to be done about each node: nodes in, actions out. Nothing here asks or changes anything.

The rules, of which each keeps a wrong check from hurting the cluster:

- Only a failure that is fresh drains. What is old, unknown or `not checked` changes nothing, in either direction.
- A drain is lifted only if its reason is ours, and only by the same check, well again, looked at after the drain.
- A node that anybody else has drained, or set down, is left alone, and so is its reason.
- A drain stands for two minutes at least, so that a check that fails now and then does not let job after job in.
- At most `max_drained` nodes are drained by checks at a time, of each pool and of all, and never the last node that
  takes jobs.
- Nothing is drained for what a large part of a pool has at once (`common_faults`).
"""

from __future__ import annotations

import enum
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from images.common.health.contract import FaultClass, Status, gravity
from images.common.health.report import Finding, lifted, reason_for
from images.common.health.slurm import Record
from images.health.checks import gpu_free

KUBERNETES: Final = "kubernetes"
"""The check that the watcher does itself: the machine, as Kubernetes sees it."""

LEAST_NODES: Final = 3
"""Fewer nodes with the same fault are no sign of anything; the limit holds for them."""
LARGE_PART: Final = 3
"""One of so many nodes of a pool."""

RECENT_SECONDS: Final = 600.0
"""A node that has been drained for longer is not a part of what happens now."""

HOLD_SECONDS: Final = 120.0
"""So long a drain for a check stands at least. A node whose check fails in every other interval would else be drained
and resumed once a minute, and take a job each time. Longer would cost more nodes after a fault of a moment, as when
munged starts anew."""


@dataclass(frozen=True, kw_only=True)
class Limit:
    """How many nodes may be drained for checks at a time: a number of nodes, or a part of all."""

    number: int
    """Nodes, or per cent of them."""
    percent: bool = False

    @staticmethod
    def parse(given: int | str) -> Limit:
        """Read 3 or `10%`. Raises ValueError."""
        text = str(given)
        return Limit(number=int(text.removesuffix("%")), percent=text.endswith("%"))

    def of(self, nodes: int) -> int:
        """How many of this many nodes; of a part that is not 0, at least one."""
        if not self.percent:
            return self.number
        return max(nodes * self.number // 100, 1 if self.number else 0)

    def __str__(self) -> str:
        """As written."""
        return f"{self.number}%" if self.percent else str(self.number)


@dataclass(frozen=True, kw_only=True)
class NodeView(Record):
    """A node as Slurm has it on record, and what is known about its health."""

    findings: Mapping[str, Finding] = field(default_factory=dict)
    began: Mapping[tuple[str, FaultClass | None], float] = field(default_factory=dict)
    """Since when each check fails, and whose fault that is, as far as the watcher has seen."""

    def drained_since(self, check: str) -> float:
        """Since when it is drained while this check fails: what is found besides begins anew. Infinity: unknown."""
        fault, unknown = self.findings[check].result.fault, math.inf
        if self.reason_at is None or self.reason.startswith(f"health/{check} [{fault or 'node'}]"):
            return self.reason_at or unknown
        return max(self.reason_at, self.began.get((check, fault), unknown))

    @property
    def takes_jobs(self) -> bool:
        """Whether a user's job could start on it: not where a reservation keeps it for the tests."""
        return not (self.is_closed or self.is_asleep or self.is_silent or "MAINTENANCE" in self.states)

    @property
    def is_declared(self) -> bool:
        """A person wants it free of jobs, and said so."""
        return any(finding.declared and finding.unwanted_since is None for finding in self.findings.values())


def breaks_machine(check: str, finding: Finding) -> bool:
    """Whether the machine is to be replaced for it.

    What gpu-free says is from before a job for as long as one runs, however new the report. GPUs that are gone are
    gpu-presence's to tell, which looks in every interval.
    """
    return finding.result.fault == "hardware" and check != gpu_free.NAME


def counts_here(finding: Finding, now: float) -> bool:
    """Whether it may be one of many: what a person has declared, and a machine that is gone, speak for themselves."""
    return finding.is_fresh(now) and not (finding.declared or finding.lost)


def common_faults(nodes: Iterable[NodeView], report_only: frozenset[str], now: float) -> dict[tuple[str, str], str]:
    """Checks that fail on a large part of a pool, by pool and check, in words.

    A file system hangs, or a driver was rolled out: drains do not help, and take away the nodes that would work again
    with the cause gone. What has been drained for it for long is no part of that.
    """
    looked: dict[tuple[str, str], int] = defaultdict(int)
    failing: dict[tuple[str, str], list[str]] = defaultdict(list)
    for node in nodes:
        if node.is_asleep:
            continue
        for check, finding in node.findings.items():
            known = finding.result.status is not Status.NOT_CHECKED and counts_here(finding, now)
            is_gone = check == KUBERNETES and node.is_down  # nobody asks its slurmd any more
            is_old = check == node.own and now - (node.reason_at or now) >= RECENT_SECONDS
            if not known or check in report_only or is_gone or is_old:
                continue
            looked[node.pool, check] += 1
            if finding.result.status is Status.FAIL:
                failing[node.pool, check].append(finding.result.message)
    common = {}
    for (pool, check), messages in sorted(failing.items()):
        if len(messages) >= LEAST_NODES and len(messages) * LARGE_PART >= looked[pool, check]:
            nodes_of = f"{len(messages)} of {looked[pool, check]} nodes of {f'pool {pool}' if pool else 'the cluster'}"
            common[pool, check] = f"{check} fails on {nodes_of} at once: {messages[0]}"
    return common


class Kind(enum.Enum):
    """What can be done about a node."""

    RESUME = "resume"
    """Lift the drain."""
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


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What to do, in this order, and what is not done though it should be."""

    actions: tuple[Action, ...] = ()
    held: tuple[Action, ...] = ()
    """What waits because the limit is reached, or no other node takes jobs."""
    common: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """For what nothing is drained, as many nodes of a pool have it: pool and check -> in words."""


_CLOSING: Final = frozenset({Kind.DRAIN, Kind.DOWN})


def decide(nodes: Iterable[NodeView], policy: Policy, now: float) -> Decision:
    """`now`: seconds since 1970, by slurmctld's clock."""
    nodes = list(nodes)
    common = common_faults(nodes, policy.report_only, now)
    round_ = _Round(policy=policy, now=now, common=common)
    wishes = [action for node in nodes if (action := round_.wish(node)) is not None]
    closing = sorted((action for action in wishes if action.kind in _CLOSING), key=_urgency)
    granted, held = _within_limit(closing, nodes, policy)
    order = list(Kind)
    actions = sorted(
        [*(action for action in wishes if action.kind not in _CLOSING), *granted],
        key=lambda action: (order.index(action.kind), action.node.name),
    )
    return Decision(actions=tuple(actions), held=tuple(held), common=common)


def _urgency(action: Action) -> tuple[bool, bool, bool, str]:
    """The order in which the room under the limit is given away, for all to be able to tell."""
    is_broken = "[hardware]" in action.reason.partition(":")[0]
    return action.kind is not Kind.DOWN, not action.node.is_declared, not is_broken, action.node.name


@dataclass(frozen=True, kw_only=True)
class _Round:
    """What should be done about each node alone, limits aside."""

    policy: Policy
    now: float
    common: Mapping[tuple[str, str], str]

    def wish(self, node: NodeView) -> Action | None:
        """What should be done about this node."""
        every = {
            check: finding
            for check, finding in node.findings.items()
            if finding.result.status is Status.FAIL
            and finding.is_fresh(self.now)
            and check not in self.policy.report_only
        }
        failing = {
            check: finding
            for check, finding in every.items()
            if (node.pool, check) not in self.common or not counts_here(finding, self.now)
        }
        own = node.own
        if own is not None:
            # What the node is drained for keeps it drained, however many have it by now.
            return self._about_own(node, own, failing | {own: every[own]} if own in every else failing)
        if not failing or node.is_closed or node.is_asleep:
            return None
        check = _gravest(failing)
        kind = Kind.DOWN if failing[check].lost else Kind.DRAIN
        return Action(kind=kind, node=node, reason=reason_for(check, failing[check].result))

    def _about_own(self, node: NodeView, own: str, failing: Mapping[str, Finding]) -> Action | None:
        """What should be done about a node that is closed for a check: it stays so while any check fails."""
        policy = self.policy
        if failing:
            worst = failing[_gravest(failing)]
            # Without jobs there is nothing to save, and the reason says what has to be well before jobs start again.
            if worst.lost and not (node.is_down or node.is_asleep or node.is_quiet):
                return Action(kind=Kind.DOWN, node=node, reason=reason_for(_gravest(failing), worst.result))
            since = min(
                (
                    node.drained_since(check)
                    for check, finding in failing.items()
                    if check == KUBERNETES or (policy.frees_broken and breaks_machine(check, finding))
                ),
                default=math.inf,
            )
            if policy.requeue_after is not None and self.now - since >= policy.requeue_after and node.has_jobs:
                return Action(kind=Kind.REQUEUE, node=node, reason=node.reason)
            return None
        if own in policy.report_only or self._is_over(node, own):  # the former: the site has said so since
            return Action(kind=Kind.RESUME, node=node, reason=lifted(node.reason))
        return None

    def _is_over(self, node: NodeView, own: str) -> bool:
        """Whether what a node is drained for is over. Machines that people cordon are free as soon as they say so."""
        finding = node.findings.get(own)
        if finding is None or not finding.clears(node.reason_at, self.now):
            return False
        if own != KUBERNETES and self.now - (node.reason_at or self.now) < HOLD_SECONDS:
            return False
        # What fails only when it has lasted begins with a warning, and a new pod has forgotten for how long it has.
        return finding.result.status is not Status.WARN or self.now - node.started_at >= HOLD_SECONDS


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
    Nodes that are set down are counted by themselves too, as that ends jobs, and so may hit drained nodes as well.
    """
    counts: dict[str | None, Counter[str]] = defaultdict(Counter)  # of all nodes, and of each pool
    for node in nodes:
        for count in (counts[None], counts[node.pool]):
            count["present"] += not node.is_absent
            count["drained"] += node.own is not None and not node.is_declared
            count["down"] += node.own is not None and node.is_down
    usable = sum(1 for node in nodes if node.takes_jobs)
    granted: list[Action] = []
    held: list[Action] = []
    for action in closing:
        node, is_down = action.node, action.kind is Kind.DOWN
        is_new = node.own is None and not node.is_declared
        # Of one that is set down the jobs are lost already; whether it is the last node does not matter to them.
        has_place = is_down or node.is_declared or usable - node.takes_jobs >= 1
        for count in (counts[None], counts[node.pool]):
            limit = policy.max_drained.of(count["present"])
            needs_place = is_new if is_down else not node.is_declared
            has_place &= (count["drained"] < limit or not needs_place) and (count["down"] < limit or not is_down)
        if not has_place:
            held.append(action)
            continue
        granted.append(action)
        usable -= node.takes_jobs
        for count in (counts[None], counts[node.pool]):
            count["drained"] += is_new
            count["down"] += is_down
    return granted, held
