"""What a site says of the tests, and what to start and to end: nodes and jobs in, actions out.

Nothing here asks or changes anything.

Users never wait for a test for long: one starts only on an idle node in whose partitions no job waits for nodes, and is
ended as soon as one does. At most `max_under_test` nodes are under test at a time. A node is slow if it is twice in a
row; the first time is a warning. In a pair, the second time is with another node, which is known to be well.

A node that is drained for `new-machine`, or for a test and whose slurmd has started since, may be another machine than
before, and is measured before it takes users' jobs. It is kept from users by a reservation, taken out of the drain, and
measured; a test that is slow runs twice. Then the node is drained for what has failed, or given back. All that is known
is the node's record, and whether there is the reservation, so the program may be ended at any point. Administrators
win: a drain of theirs stays, and whoever deletes the reservation has the node. Tests of pairs are left out, as the
partner would be taken from users. What could not be checked counts as done: a tool that is not installed would keep the
node for ever.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from images.common.health.contract import Result, Status
from images.common.health.report import NEW_MACHINE
from images.common.health.slurm import Record as NodeRecord
from images.health.node_tests.catalog import TESTS, Expected, NodeTest, load
from images.health.node_tests.results import Record
from images.health.watch.decide import Limit

PENDING_SECONDS: Final = 60.0
"""After which a test that has not started is not wanted any more."""
AGAIN_SECONDS: Final = 120.0
"""After which what was found bad once is measured again."""
FAILED_SECONDS: Final = 600.0
"""After which a node that has failed and is not drained is measured again: before the watcher takes it for old news
(`watch/decide.py`), and after an administrator has given the node back."""

_IDLE: Final = frozenset({"IDLE", "CLOUD", "DYNAMIC_NORM", "DYNAMIC_FUTURE"})
"""States that a node may have where tests run. With any other one (planned for a job, reserved, asleep, ...) it is left
alone."""
_BAD: Final = frozenset({Status.WARN, Status.FAIL})
_RESERVED: Final = frozenset({"MAINTENANCE", "RESERVED"})


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a site says. It was checked when it was written (config/sections/health.py)."""

    tests: Sequence[NodeTest]
    intervals: Mapping[str, float]
    """Seconds between two runs of a test, where that is not the test's own."""
    max_under_test: Limit
    expected: Expected
    platforms: Mapping[str, str]
    """Pool -> what its nodes are called in `expected`."""
    infiniband: frozenset[str]
    """Pools with InfiniBand between their nodes."""
    directory: str
    """On the file system that is measured."""
    nccl_tests: str
    """NCCL's all-reduce test, built with MPI, as jobs find it."""
    mpi: str
    """How srun starts what is built with MPI."""
    account: str
    """On whose account tests run, where the site's accounting asks for one."""
    qos: str
    partition: str
    """In which tests run, in place of the first one of a node."""

    @staticmethod
    def parse(given: Mapping[str, Any]) -> Settings:
        """Of a JSON file's keys, each of which may be left out; what a newer one has beyond these is passed over.

        Raises ValueError, TypeError, AttributeError.
        """
        names = given.get("tests", [name for name, test in TESTS.items() if test.default])
        return Settings(
            tests=[TESTS[name] for name in names if name in TESTS],
            intervals=given.get("intervals", {}),
            max_under_test=Limit.parse(given.get("max_under_test", "10%")),
            expected=load(given.get("expected", {})),
            platforms=given.get("platforms", {}),
            infiniband=frozenset(given.get("infiniband", [])),
            directory=given.get("directory", "/var/tmp"),
            nccl_tests=given.get("nccl_tests", "all_reduce_perf"),
            mpi=given.get("mpi", "pmix"),
            account=given.get("account", ""),
            qos=given.get("qos", ""),
            partition=given.get("partition", ""),
        )


@dataclass(frozen=True, kw_only=True)
class NodeView(NodeRecord):
    """A node, as far as tests depend on it: a test runs in the first of its partitions, pairs are of one pool."""

    records: Mapping[str, Record] = field(default_factory=dict)
    """Last results, by test."""
    since: float = 0.0
    """Results from before that count for nothing: it may have been another machine, or all is to be measured again."""

    def is_in(self, states: Iterable[str]) -> bool:
        """Whether it is idle and has none but these states besides."""
        return "IDLE" in self.states and self.states <= _IDLE.union(states) and bool(self.partitions)

    def status(self, test: NodeTest) -> Status | None:
        """Of its last result that counts."""
        record = self.records.get(test.name)
        return record.result.status if record is not None and record.at >= self.since else None


@dataclass(frozen=True, kw_only=True)
class TestJob:
    """A test that waits, runs or has ended."""

    __test__ = False  # for pytest

    number: int
    test: str
    nodes: tuple[str, ...]
    submitted_at: float = 0.0
    waits: bool = False
    ended: str = ""
    """In which state; empty: it has not."""
    began: int = 0
    comment: str = ""


@dataclass(frozen=True, kw_only=True)
class Submit:
    """Start a test."""

    test: NodeTest
    nodes: tuple[NodeView, ...]

    @property
    def names(self) -> list[str]:
        """Of the nodes."""
        return [node.name for node in self.nodes]


def after(test: NodeTest, job: TestJob, result: Result, nodes: Mapping[str, NodeView]) -> dict[str, Record]:
    """The new records of a run's nodes, by node: of those that do not have it on record yet."""
    new = {}
    for name in job.nodes:
        node, found = nodes.get(name), result
        last = node.records.get(test.name) if node is not None else None
        if node is None or job.began < node.since or (last is not None and job.began <= last.at):
            continue
        if test.nodes > 1:
            others = " and ".join(other for other in job.nodes if other != name)
            found = replace(found, message=f"with {others}: {found.message}")
        if found.status is Status.FAIL and node.status(test) not in _BAD:
            found = replace(found, status=Status.WARN, message=f"{found.message}, measured once")
        new[name] = Record(at=job.began, result=found)
    return new


def unwanted(job: TestJob, nodes: Mapping[str, NodeView], wanted: set[str], now: float) -> str:
    """Why a test has to end; empty if it has not to. `wanted`: partitions in which users' jobs wait for nodes."""
    if not all(name in nodes for name in job.nodes):
        return "its node is gone"
    # Users cannot have a node that is kept from them.
    if any("MAINTENANCE" not in nodes[name].states and wanted & {*nodes[name].partitions} for name in job.nodes):
        return "a job waits"
    return "it did not start" if job.waits and now - job.submitted_at > PENDING_SECONDS else ""


def submits(
    nodes: Mapping[str, NodeView], busy: set[str], wanted: set[str], settings: Settings, now: float
) -> Iterator[Submit]:
    """What to start, what is due longest first. `busy`: nodes of tests that wait or run, and that are kept for them."""
    free = {n.name: n for n in nodes.values() if n.is_in(()) and n.name not in busy and not wanted & {*n.partitions}}
    due = [
        (due_at(test, group[0], settings), Submit(test=test, nodes=tuple(group)))
        for test in settings.tests
        for group in ([[node] for node in free.values()] if test.nodes == 1 else _pairs(test, free, settings, now))
    ]
    limit, under_test = settings.max_under_test.of(len(nodes)), len(busy)
    for at, wish in sorted(due, key=lambda entry: (entry[0], entry[1].test.name, entry[1].names)):
        # A pair may run alone where the limit is one node: else it never could.
        has_room = under_test + len(wish.nodes) <= limit or (limit > 0 and under_test == 0)
        if at <= now and has_room and all(fits(wish.test, node) and node.name in free for node in wish.nodes):
            yield wish
            under_test += len(wish.nodes)
            for name in wish.names:
                del free[name]


def due_at(test: NodeTest, node: NodeView, settings: Settings) -> float:
    """When a test is to run on a node, in seconds since 1970; 0: it never has."""
    record = node.records.get(test.name)
    if record is None or (record.result.status in _BAD and record.at < node.since):  # perhaps it was repaired
        return 0.0
    wait = settings.intervals.get(test.name, test.interval)
    again = {Status.WARN: AGAIN_SECONDS, Status.FAIL: FAILED_SECONDS}.get(record.result.status, wait)
    return record.at + min(wait, again)


def fits(test: NodeTest, node: NodeView) -> bool:
    """Whether a node has what a test needs."""
    return node.gpus >= test.gpus


def _pairs(test: NodeTest, free: Mapping[str, NodeView], settings: Settings, now: float) -> Iterator[list[NodeView]]:
    """Nodes that are due, each with another one that is alike and in the same partition.

    One that was slow is measured again with one that is well, and with no other, as nobody would know which it is.
    """
    idle = sorted(
        (node for node in free.values() if fits(test, node)), key=lambda n: (due_at(test, n, settings), n.name)
    )
    while idle and due_at(test, idle[0], settings) <= now:
        first = idle.pop(0)
        for other in idle:
            alike = (first.pool, first.gpus, first.partitions[0]) == (other.pool, other.gpus, other.partitions[0])
            statuses = {first.status(test), other.status(test)}
            if alike and (not statuses & _BAD or Status.OK in statuses):
                idle.remove(other)
                yield [first, other]
                break


# ---------------------------------------------------------------- what may be another machine than before


class Step(enum.Enum):
    """What can be done about a node."""

    WAIT = "wait"
    HOLD = "hold"
    """Keep it for the tests by a reservation."""
    OPEN = "open"
    """Forget its results, and lift the drain: the reservation still keeps it."""
    SUBMIT = "submit"
    """Start the first test that is left."""
    DRAIN = "drain"
    """For what has failed, or as before where no test can run; the next round gives it back."""
    GIVE_BACK = "give back"
    """End its tests, and the reservation."""


def step(node: NodeView | None, *, held: bool, busy: bool, tests: Sequence[NodeTest]) -> Step:
    """The next step for such a node. `held`: it has the reservation. `busy`: a test waits or runs there."""
    if node is None:
        return Step.GIVE_BACK
    if not held:
        return Step.HOLD if _is_new(node) and not busy and node.is_in({"DRAIN"}) else Step.WAIT
    return _next(node, busy=busy, tests=tests)


def _next(node: NodeView, *, busy: bool, tests: Sequence[NodeTest]) -> Step:
    """Of a node that is kept for the tests."""
    if node.is_asleep or node.states & {"DRAIN", "FAIL"}:
        if busy or not _is_new(node) or not node.is_in({"DRAIN", *_RESERVED}):
            return Step.GIVE_BACK
        return Step.OPEN if node.states & _RESERVED else Step.WAIT
    if busy or not node.is_quiet:
        return Step.WAIT
    if left(node, tests):
        return Step.SUBMIT if node.is_in(_RESERVED) else Step.DRAIN
    return Step.DRAIN if failed(node, tests) else Step.GIVE_BACK


def _is_new(node: NodeView) -> bool:
    if node.own is None or "DRAIN" not in node.states:
        return False
    if node.own.check in TESTS:
        return node.started_at > (node.reason_at or node.started_at)
    return node.own.check == NEW_MACHINE


def left(node: NodeView, tests: Sequence[NodeTest]) -> list[NodeTest]:
    """Tests that are still to run."""
    alone = (test for test in tests if test.nodes == 1 and fits(test, node))
    return [test for test in alone if node.status(test) in {None, Status.WARN}]


def failed(node: NodeView, tests: Sequence[NodeTest]) -> str:
    """The test for which it is to be drained, if there is one."""
    return next((test.name for test in tests if node.status(test) is Status.FAIL), "")
