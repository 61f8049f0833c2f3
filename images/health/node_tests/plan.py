"""What a site says of the tests, and what to start and to end: nodes and jobs in, wishes out.

Nothing here asks or changes anything. Users never wait for a test for long: one starts only on an idle node in whose
partitions no job waits for nodes, and is ended as soon as one does. At most a tenth of the nodes is under test at a
time. A node is slow if it is twice in a row; the first time is a warning, and the test runs again soon.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from images.common.health.contract import Result, Status
from images.common.health.report import Finding
from images.common.health.slurm import Record
from images.health.node_tests.catalog import TESTS, Expected, NodeTest, load
from images.health.watch.decide import Limit

MOST_UNDER_TEST: Final = Limit(number=10, percent=True)
INTERVAL_SECONDS: Final = 86_400.0
"""From one run of a test on a node to the next."""
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
HELD: Final = "MAINTENANCE"
"""Of a node that is kept for the tests."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a site says. It was checked when it was written (config/sections/health.py)."""

    tests: Sequence[NodeTest]
    expected: Expected
    infiniband: frozenset[str]
    """Pools with InfiniBand between their nodes."""
    directory: str
    """On the file system that is measured."""
    account: str
    """On whose account tests run; empty without accounting."""

    @staticmethod
    def parse(given: Mapping[str, Any]) -> Settings:
        """Of a JSON file's keys, each of which may be left out."""
        return Settings(
            tests=[TESTS[name] for name in given.get("tests", [])],
            expected=load(given.get("expected", {})),
            infiniband=frozenset(given.get("infiniband", [])),
            directory=given.get("directory", "/var/tmp"),
            account=given.get("account", ""),
        )

    def fit(self, node: Record) -> list[NodeTest]:
        """The tests for which a node has what they need."""
        has_infiniband = bool(self.infiniband & node.features)
        return [test for test in self.tests if node.gpus >= test.gpus and (has_infiniband or not test.infiniband)]


@dataclass(frozen=True, kw_only=True)
class TestJob:
    """A test that waits, runs or has ended."""

    __test__ = False  # for pytest

    number: int
    test: str
    node: str
    submitted_at: float = 0.0
    waits: bool = False
    ended: str = ""
    """In which state; empty: it has not."""
    ended_at: int = 0
    comment: str = ""


def after(test: NodeTest, job: TestJob, result: Result, node: Record) -> Finding | None:
    """What is new of a test on a node; None if it is there already."""
    last = node.tests.get(test.name)
    if last is not None and job.ended_at <= last.at:
        return None
    was_bad = last is not None and last.result.status in {Status.WARN, Status.FAIL}
    if result.status is Status.FAIL and not was_bad:
        result = replace(result, status=Status.WARN, message=f"{result.message}, measured once")
    return Finding(at=job.ended_at, result=result)


def unwanted(job: TestJob, node: Record, wanted: Collection[str], now: float) -> str:
    """Why a test has to end; empty if it has not to. `wanted`: partitions in which users' jobs wait for nodes."""
    if HELD in node.states:  # users cannot have it
        return ""
    if not {*node.partitions}.isdisjoint(wanted):
        return "a job waits"
    return "it did not start" if job.waits and now - job.submitted_at > PENDING_SECONDS else ""


def due(
    nodes: Collection[Record], busy: Collection[str], wanted: Collection[str], settings: Settings, now: float
) -> list[tuple[NodeTest, Record]]:
    """What to start, what is due longest first; each in the node's first partition.

    `busy`: nodes of tests that wait or run. `wanted`: see `unwanted`.
    """
    idle = [node for node in nodes if "IDLE" in node.states and node.states <= _IDLE and node.partitions]
    free = [node for node in idle if node.name not in busy and {*node.partitions}.isdisjoint(wanted)]
    wishes = [
        (due_at(last.get(test.name)), test, node)
        for node, last in ((node, node.tests) for node in free)
        for test in settings.fit(node)
    ]
    first: dict[str, tuple[NodeTest, Record]] = {}
    for at, test, node in sorted(wishes, key=lambda wish: (wish[0], wish[1].name, wish[2].name)):
        if at <= now:
            first.setdefault(node.name, (test, node))
    return list(first.values())[: max(MOST_UNDER_TEST.of(len(nodes)) - len(busy), 0)]


def due_at(last: Finding | None) -> float:
    """When a test is to run on a node again, in seconds since 1970; 0: it never has."""
    if last is None:
        return 0.0
    pauses = {Status.WARN: AGAIN_SECONDS, Status.FAIL: FAILED_SECONDS}
    return last.at + pauses.get(last.result.status, INTERVAL_SECONDS)
