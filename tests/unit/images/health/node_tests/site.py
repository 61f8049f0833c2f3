"""A small Slurm with the tests of nodes, and the watcher, in it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from images.common.health.report import Report, encode
from images.common.health.slurm import Slurm
from images.health.node_tests.plan import Settings
from images.health.node_tests.program import NodeTester
from images.health.node_tests.results import Record, decode
from images.health.node_tests.slurm import TestSlurm
from images.health.verdict import ok
from images.health.watch.decide import Limit, Policy
from images.health.watch.watcher import Watcher
from tests.fakes.node_tests_cluster import FakeCluster, Job

H100 = "8x NVIDIA H100 80GB HBM3"
WELL = {
    "cpu-speed": "events per second: 5000",
    "memory-bandwidth": "transferred (9983.30 MiB/sec)",
    "nccl-node": "Out of bounds values : 0 OK\nAvg bus bandwidth : 476",
    "nccl-pair": "Out of bounds values : 0 OK\nAvg bus bandwidth : 350",
}
SLOW = {
    "cpu-speed": "events per second: 90.5",
    "memory-bandwidth": "transferred (990.00 MiB/sec)",
    "nccl-node": "Out of bounds values : 0 OK\nAvg bus bandwidth : 212",
    "nccl-pair": "Out of bounds values : 0 OK\nAvg bus bandwidth : 40",
}
EXPECTED = {"machine": {"cpu-speed": {"events": 1000}, "memory-bandwidth": {"write": 5}}}


def told(text: str, code: int = 0) -> str:
    """What the batch script says."""
    return json.dumps({"code": code, "text": text, "platform": H100})


class Site:
    """A cluster of nodes w-0, w-1, ... with both programs."""

    def __init__(self, count: int = 1, *tests: str, slow: Callable[[Job], bool] | None = None, **settings: Any) -> None:
        """`slow`: whether a run finds its nodes slow."""
        self.slow = slow or (lambda _job: False)
        self.cluster = FakeCluster(count, measure=lambda job: told((SLOW if self.slow(job) else WELL)[job.test]))
        usual = {"max_under_test": "100%", "platforms": {"pool": "machine"}, "expected": EXPECTED}
        self.settings = Settings.parse({**usual, "tests": tests or ["cpu-speed"], "infiniband": ["pool"], **settings})
        self.log: list[str] = []
        self.was_open: list[bool] = []
        """Whether users could have had w-0, by rounds."""
        self.start()

    def start(self, *, measures_new: bool = True) -> None:
        """Start both programs, again."""
        wall, log = self.cluster.wall, self.log.append
        policy = Policy(max_drained=Limit.parse("100%"), measures_new=measures_new)
        self.watcher = Watcher(slurm=Slurm(runner=self.cluster), policy=policy, log=log, wall=wall)
        self.slurm = TestSlurm(runner=self.cluster, settings=self.settings)
        self.tester = NodeTester(slurm=self.slurm, log=log, wall=wall)

    def round(self, seconds: int = 5) -> None:
        """A round of both, after a while; then all tests have ended."""
        self.look(seconds)
        self.cluster.now += 1
        self.cluster.end()

    def look(self, seconds: int = 5) -> None:
        """A round of both, after a while."""
        self.cluster.now += seconds
        for name in self.cluster.nodes:
            self.report(name)
        self.watcher.round()
        self.tester.round()
        self.was_open.append(self.cluster.is_open("w-0"))

    def rounds(self, count: int, seconds: int = 5) -> None:
        for _ in range(count):
            self.round(seconds)

    def report(self, name: str, **results: Any) -> None:
        """What the checks of a node say now."""
        found = {"gpu-presence": ok(), **results}
        self.cluster.nodes[name].comment = encode(Report(at=self.cluster.now, results=found))

    def record(self, name: str = "w-0", test: str = "cpu-speed") -> Record | None:
        return decode(self.cluster.nodes[name].extra).get(test)

    def statuses(self, name: str = "w-0") -> Mapping[str, str]:
        found = decode(self.cluster.nodes[name].extra)
        return {test: record.result.status.value for test, record in found.items()}

    def ran(self) -> list[str]:
        return [job.test for job in self.cluster.jobs]

    @property
    def reason(self) -> str:
        return self.cluster.nodes["w-0"].reason
