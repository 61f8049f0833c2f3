"""A small Slurm with the tests of nodes, and the watcher, in it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping

from images.common.health.report import measured_in
from images.common.health.slurm import Slurm, SlurmError
from images.common.wait import Clock
from images.health.node_tests.program import ByHand, NodeTester
from images.health.node_tests.slurm import Settings, TestSlurm
from images.health.watch.decide import Limit, Policy
from images.health.watch.watcher import Watcher
from tests.fakes.node_tests_cluster import FakeCluster, Job

WELL = {"events": ["5000"], "write": ["9983.30"]}
SLOW = {"events": ["90.5"], "write": ["990.00"]}
EXPECTED = {"pool": {"cpu-speed": {"events": 1000}, "memory-bandwidth": {"write": 5}}}


class Site:
    """A cluster of nodes w-0, w-1, ... with both programs."""

    def __init__(self, count: int = 1, *tests: str, slow: Callable[[Job], bool] | None = None) -> None:
        """`slow`: whether a run finds its node slow."""
        self.slow = slow or (lambda _job: False)
        self.cluster = FakeCluster(count, measure=self._measure)
        self.settings = Settings.parse({"expected": EXPECTED, "tests": tests or ["cpu-speed"]})
        self.log: list[str] = []
        self.start()

    def _measure(self, job: Job) -> str:
        return json.dumps({"code": 0, "figures": SLOW if self.slow(job) else WELL, "faults": [], "platform": ""})

    def start(self) -> None:
        """Start both programs, again."""
        wall, log = self.cluster.wall, self.log.append
        policy = Policy(max_drained=Limit.parse("100%"))
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
        self.watcher.round()
        self.tester.round()

    def rounds(self, count: int, seconds: int = 5) -> None:
        for _ in range(count):
            self.round(seconds)

    def statuses(self, name: str = "w-0") -> Mapping[str, str]:
        found = measured_in(self.cluster.nodes[name].extra)
        return {test: record.result.status.value for test, record in found.items()}

    def ran(self) -> list[str]:
        return [job.test for job in self.cluster.jobs]

    @property
    def reason(self) -> str:
        return self.cluster.nodes["w-0"].reason

    def by_hand(self, name: str = "w-0", meanwhile: Callable[[], object] = lambda: None) -> tuple[int, list[str]]:
        """Measure a node now, while both programs go on: the exit code, and what is said."""
        said: list[str] = []
        site = self

        class Rounds(Clock):
            def sleep(self, seconds: float) -> None:
                meanwhile()
                with contextlib.suppress(SlurmError):
                    site.round(int(seconds))

        return ByHand(slurm=self.slurm, name=name, say=said.append, clock=Rounds()).measure(), said
