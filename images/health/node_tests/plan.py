"""What to start and what to end: nodes, jobs and times in, actions out. Nothing here asks or changes anything.

Users never wait for a test:

- A test starts only on nodes that are idle, and in a partition in which no job waits for nodes.
- As soon as a user's job waits that could run on a node under test, that test is ended. It counts as not having been.
- A test that does not start at once is ended too: somebody was faster.
- At most `max_under_test` nodes are under test at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from images.health.contract import Status
from images.health.node_tests.contract import NodeTest
from images.health.node_tests.results import Record
from images.health.node_tests.split import Standing, next_pairs
from images.health.slurm import Record as NodeRecord
from images.health.watch.limit import Limit

PENDING_SECONDS: Final = 15.0
"""After which a test that has not started is not wanted any more."""
AGAIN_SECONDS: Final = 120.0
"""After which what was found bad once is measured again."""
FAILED_SECONDS: Final = 600.0
"""After which a node that has failed and is not drained is measured again: before the watcher takes it for old news
(`watch/decide.py`), and after an administrator has given the node back."""

_HARMLESS: Final = frozenset({"IDLE", "CLOUD", "DYNAMIC_NORM", "DYNAMIC_FUTURE"})
"""States that an idle node may have. With any other one (planned for a job, reserved, asleep, drained, ...) it is left
alone."""

NOT_FOR_NODES: Final = (
    "AccountNotAllowed",
    "AssocMax",
    "BadConstraints",
    "BeginTime",
    "DeadLine",
    "Dependency",
    "InvalidAccount",
    "InvalidQOS",
    "JobArrayTaskLimit",
    "JobHeld",
    "JobHold",
    "Licenses",
    "Max",
    "PartitionDown",
    "PartitionInactive",
    "PartitionNodeLimit",
    "PartitionTimeLimit",
    "QOSMax",
    "QOSMin",
    "QOSNotAllowed",
    "QOSUsageThreshold",
)
"""Beginnings of the reasons for which a job waits that no test can have to do with (`job_state_reason.c` of 26.05). A
job that waits for anything else, or for what is not known yet (`None`), is in the way of tests: also one that waits for
the limit of a group, in which tests may be counted."""


@dataclass(frozen=True, kw_only=True)
class NodeView(NodeRecord):
    """A node, as far as tests depend on it: a test runs in the first of its partitions, pairs are of one pool."""

    records: Mapping[str, Record] = field(default_factory=dict)
    """Last results, by test."""

    @property
    def is_idle(self) -> bool:
        """Whether a test may start on it."""
        return "IDLE" in self.states and self.states <= _HARMLESS and bool(self.partitions)


@dataclass(frozen=True, kw_only=True)
class TestJob:
    """A test that is waiting or running."""

    __test__ = False  # for pytest

    number: int
    test: str
    nodes: tuple[str, ...]
    running: bool
    submitted_at: float


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """A user's job that waits."""

    partitions: tuple[str, ...]
    reason: str

    @property
    def wants_nodes(self) -> bool:
        """Whether it might start if a node were free."""
        return not self.reason.strip("()").startswith(NOT_FOR_NODES)


@dataclass(frozen=True, kw_only=True)
class Policy:
    """What the site wants."""

    tests: Sequence[NodeTest]
    max_under_test: Limit
    intervals: Mapping[str, float] = field(default_factory=dict)
    """Seconds between two runs of a test, where that is not the test's own."""

    def interval(self, test: NodeTest) -> float:
        """Seconds between two runs."""
        return self.intervals.get(test.name, test.interval)


@dataclass(frozen=True, kw_only=True)
class Cancel:
    """End a test."""

    job: TestJob
    why: str


@dataclass(frozen=True, kw_only=True)
class Submit:
    """Start a test."""

    test: NodeTest
    nodes: tuple[NodeView, ...]
    partition: str


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to do now."""

    cancel: tuple[Cancel, ...] = ()
    submit: tuple[Submit, ...] = ()


def plan(
    nodes: Iterable[NodeView],
    jobs: Iterable[TestJob],
    waiting: Iterable[Waiting],
    policy: Policy,
    now: float,
    *,
    retested: frozenset[str] = frozenset(),
) -> Plan:
    """`now`: seconds since 1970, by slurmctld's clock. `retested`: nodes that users cannot have (`retest.py`).

    These count as under test, and their tests are not ended here: they are in nobody's way.
    """
    by_name = {node.name: node for node in nodes}
    jobs = list(jobs)
    wanted = _wanted(waiting)
    cancel = [
        Cancel(job=job, why=why)
        for job in jobs
        if retested.isdisjoint(job.nodes) and (why := _unwanted(job, by_name, wanted, now))
    ]
    busy = {name for job in jobs for name in job.nodes} | retested
    free = {
        name: node
        for name, node in by_name.items()
        if node.is_idle and name not in busy and not _is_wanted(node, wanted)
    }
    return Plan(cancel=tuple(cancel), submit=tuple(_submit(free, by_name, busy, policy, now)))


def _wanted(waiting: Iterable[Waiting]) -> frozenset[str] | None:
    """Partitions in which jobs wait for nodes; None: nobody knows which, so all."""
    jobs = [job for job in waiting if job.wants_nodes]
    if any(not job.partitions for job in jobs):
        return None
    return frozenset(partition for job in jobs for partition in job.partitions)


def _is_wanted(node: NodeView, wanted: frozenset[str] | None) -> bool:
    return wanted is None or not wanted.isdisjoint(node.partitions)


def _unwanted(job: TestJob, nodes: Mapping[str, NodeView], wanted: frozenset[str] | None, now: float) -> str:
    """Why a test has to end; empty if it has not to."""
    views = [nodes.get(name) for name in job.nodes]
    if any(node is None for node in views):
        return "its node is gone"
    if any(node is not None and _is_wanted(node, wanted) for node in views):
        return "a job waits"
    if not job.running and now - job.submitted_at > PENDING_SECONDS:
        return "it did not start at once"
    return ""


def _submit(
    free: dict[str, NodeView], nodes: Mapping[str, NodeView], busy: set[str], policy: Policy, now: float
) -> Iterator[Submit]:
    limit = policy.max_under_test.of(len(nodes))
    under_test = len(busy)
    for wish in _wishes(free, nodes, policy, now):
        names = [node.name for node in wish.nodes]
        # A pair may run alone where the limit is one node: else it never could.
        has_room = under_test + len(names) <= limit or (limit > 0 and under_test == 0)
        if has_room and all(name in free for name in names):
            yield wish
            under_test += len(names)
            for name in names:
                del free[name]


def _wishes(
    free: Mapping[str, NodeView], nodes: Mapping[str, NodeView], policy: Policy, now: float
) -> Iterator[Submit]:
    """All that could run, the most urgent first: what finds the guilty one of a pair, then what is due longest."""
    due: list[tuple[float, str, str, Submit]] = []
    for test in policy.tests:
        if test.nodes == 1:
            for node in free.values():
                at = due_at(test, node, policy)
                if fits(test, node) and at <= now:
                    due.append((at, test.name, node.name, _submit_of(test, (node,))))
            continue
        for group in _groups(test, nodes):
            idle = [node for node in group if node.name in free]
            standings = {node.name: standing(test, node, nodes) for node in group}
            for pair in next_pairs(standings, (node.name for node in idle)):
                yield _submit_of(test, tuple(nodes[name] for name in pair))
            for at, first, second in _pairs(test, idle, policy, now):
                due.append((at, test.name, first.name, _submit_of(test, (first, second))))
    for _, _, _, wish in sorted(due, key=lambda entry: entry[:3]):
        yield wish


def due_at(test: NodeTest, node: NodeView, policy: Policy) -> float:
    """When a test is to run on a node, in seconds since 1970; 0: it never has."""
    record = node.records.get(test.name)
    if record is None:
        return 0.0
    if record.result.status in {Status.WARN, Status.FAIL} and node.started_at > record.at:
        return 0.0  # perhaps it was repaired
    wait = policy.interval(test)
    if test.nodes == 1:  # a suspect of a pair is asked for by the search for the guilty one
        wait = min(wait, {Status.WARN: AGAIN_SECONDS, Status.FAIL: FAILED_SECONDS}.get(record.result.status, wait))
    return record.at + wait


def fits(test: NodeTest, node: NodeView) -> bool:
    """Whether a node has what a test needs."""
    return node.gpus >= test.gpus


def standing(test: NodeTest, node: NodeView, nodes: Mapping[str, NodeView]) -> Standing:
    """What the record of a test of pairs says of a node. A partner that may be another machine now is left out."""
    record = node.records.get(test.name)
    if record is None:
        return Standing()
    met = {name: at for name, at in record.failed_with.items() if name in nodes and nodes[name].started_at <= at}
    return Standing(well_at=record.at if record.result.status is Status.OK else None, failed_with=met)


def _groups(test: NodeTest, nodes: Mapping[str, NodeView]) -> list[list[NodeView]]:
    """Nodes of which pairs may be made: alike, and in one partition."""
    groups: dict[tuple[str, int, str], list[NodeView]] = {}
    for name in sorted(nodes):
        node = nodes[name]
        if fits(test, node) and node.partitions:
            groups.setdefault((node.pool, node.gpus, node.partitions[0]), []).append(node)
    return list(groups.values())


def _pairs(
    test: NodeTest, idle: list[NodeView], policy: Policy, now: float
) -> Iterator[tuple[float, NodeView, NodeView]]:
    """Nodes that are due, in twos; an odd one with a node that is not due, or later, when another one is idle."""
    order = sorted(idle, key=lambda node: (due_at(test, node, policy), node.name))
    for first, second in zip(order[::2], order[1::2], strict=False):
        at = due_at(test, first, policy)
        if at <= now:
            yield at, first, second


def _submit_of(test: NodeTest, nodes: tuple[NodeView, ...]) -> Submit:
    return Submit(test=test, nodes=nodes, partition=nodes[0].partitions[0])
