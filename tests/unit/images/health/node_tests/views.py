"""Nodes, records and jobs for the tests."""

from __future__ import annotations

from collections.abc import Mapping

from images.health.contract import FaultClass, Result, Status
from images.health.node_tests.catalog import TESTS
from images.health.node_tests.plan import NodeView, Plan, Policy, TestJob, Waiting
from images.health.node_tests.results import Record
from images.health.watch.limit import Limit

NOW = 1_795_000_000
CPU, PAIR = TESTS["cpu-speed"], TESTS["nccl-pair"]


def node(
    name: str,
    *states: str,
    records: Mapping[str, Record] | None = None,
    gpus: int = 0,
    pool: str = "p",
    partitions: tuple[str, ...] = ("main",),
    started_at: int = 0,
) -> NodeView:
    return NodeView(
        name=name,
        states=frozenset(states or ("IDLE", "DYNAMIC_NORM")),
        partitions=partitions,
        pool=pool,
        gpus=gpus,
        records=records or {},
        started_at=started_at,
    )


def record(status: Status = Status.OK, *, ago: int = 0, failed_with: Mapping[str, int] | None = None) -> Record:
    fault: FaultClass | None = "hardware" if status in {Status.WARN, Status.FAIL} else None
    return Record(at=NOW - ago, result=Result(status=status, fault=fault, message="m"), failed_with=failed_with or {})


def policy(*names: str, most: str = "100%", intervals: Mapping[str, float] | None = None) -> Policy:
    return Policy(
        tests=[TESTS[name] for name in names or ("cpu-speed",)],
        max_under_test=Limit.parse(most),
        intervals=intervals or {},
    )


def job(*nodes: str, number: int = 7, test: str = "cpu-speed", running: bool = True, ago: float = 5.0) -> TestJob:
    return TestJob(number=number, test=test, nodes=nodes, running=running, submitted_at=NOW - ago)


def waits(reason: str = "Resources", partitions: tuple[str, ...] = ("main",)) -> Waiting:
    return Waiting(partitions=partitions, reason=reason)


def started(plan: Plan) -> list[tuple[str, tuple[str, ...]]]:
    return [(wish.test.name, tuple(node.name for node in wish.nodes)) for wish in plan.submit]
