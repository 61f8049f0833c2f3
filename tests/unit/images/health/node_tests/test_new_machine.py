"""A node that may be another machine than before takes no jobs until it was measured: watcher and re-tests together."""

from __future__ import annotations

import pytest

from images.health.contract import Result, Status
from images.health.node_tests.program import NodeTester
from images.health.node_tests.results import Record, decode, encode
from images.health.node_tests.settings import parse
from images.health.node_tests.slurm import TestSlurm
from images.health.report import Report
from images.health.report import encode as encode_report
from images.health.slurm import Slurm
from images.health.watch.decide import Policy
from images.health.watch.limit import Limit
from images.health.watch.watcher import Watcher
from tests.fakes.node_tests_cluster import FakeCluster, Job
from tests.unit.images.health.node_tests.told import told

GONE = "health/gpu-presence [hardware]: 7 of 8 GPUs"
TESTS = ("cpu-speed", "memory-bandwidth")
GOOD = {"cpu-speed": told("events per second: 5000"), "memory-bandwidth": told("transferred (9983.30 MiB/sec)")}
SLOW = {**GOOD, "memory-bandwidth": told("transferred (990.00 MiB/sec)")}
EXPECTED = {"cpu-speed": {"events": 1000}, "memory-bandwidth": {"write": 5}}
TRIES = 60


class KilledError(Exception):
    pass


class Site:
    """One node that was drained for its GPUs, and whose slurmd has started since; with both programs."""

    def __init__(self, found: dict[str, str], *, tests: tuple[str, ...] = TESTS) -> None:
        self.found = found
        self.cluster = FakeCluster(gpus=0, measure=self.measure)
        self.settings = parse(
            {"tests": list(tests), "max_under_test": "100%", "platforms": {"pool": "m"}, "expected": {"m": EXPECTED}}
        )
        well = Record(at=self.cluster.now - 9000, result=Result(status=Status.OK, message="events 5000 events/s"))
        self.cluster.nodes["w-0"].extra = encode({"cpu-speed": well}, "")
        self.cluster.drain("w-0", GONE)
        self.cluster.nodes["w-0"].started_at = self.cluster.now + 60
        self.cluster.now += 100
        self.log: list[str] = []
        self.was_open: list[bool] = []
        self.start()

    def measure(self, job: Job) -> str:
        return self.found.get(job.name.partition("-")[2].partition(":")[0], told("", code=127))

    def start(self, *, measures_new: bool = True) -> None:
        wall, log = self.cluster.wall, self.log.append
        policy = Policy(max_drained=Limit.parse("1"), measures_new=measures_new)
        self.watcher = Watcher(slurm=Slurm(runner=self.cluster), policy=policy, log=log, wall=wall)
        self.tester = NodeTester(slurm=TestSlurm(runner=self.cluster, settings=self.settings), log=log, wall=wall)

    def report(self, **results: Result) -> None:
        """What the checks say now."""
        found = {"gpu-presence": Result(status=Status.OK), **results}
        self.cluster.nodes["w-0"].comment = encode_report(Report(at=self.cluster.now, results=found))

    def round(self, seconds: int = 3) -> None:
        self.cluster.now += seconds
        self.report()
        self.watcher.round()
        self.tester.round()
        self.cluster.end()
        self.was_open.append(self.cluster.is_open("w-0"))

    def until_open(self) -> None:
        for _ in range(TRIES):
            self.round()
            if self.was_open[-1]:
                return
        pytest.fail(f"still not open: {self.cluster.nodes} {self.log}")

    @property
    def reason(self) -> str:
        return self.cluster.nodes["w-0"].reason

    def ran(self) -> list[str]:
        return [job.name.partition("-")[2].partition(":")[0] for job in self.cluster.jobs]

    def statuses(self) -> dict[str, str]:
        return {name: record.result.status.value for name, record in decode(self.cluster.extras["w-0"]).items()}


def test_one_that_is_slow_is_measured_twice_and_then_drained_for_that() -> None:
    site = Site(SLOW)
    for _ in range(2 * TRIES):
        site.round()
    assert site.ran() == [*TESTS, "memory-bandwidth"]
    assert site.reason.startswith("health/memory-bandwidth [hardware]: write 1.0")
    assert not any(site.was_open)


def test_what_cannot_be_checked_does_not_keep_it_for_ever() -> None:
    site = Site({})
    site.until_open()
    assert site.statuses() == {"cpu-speed": "not checked", "memory-bandwidth": "not checked"}


def test_without_tests_of_nodes_it_is_open_as_soon_as_its_check_is_well_and_a_drain_for_them_is_lifted() -> None:
    site = Site(GOOD)
    site.round()
    assert site.reason.startswith("health/new-machine")
    site.start(measures_new=False)
    site.watcher.round()
    assert site.cluster.is_open("w-0")


@pytest.mark.parametrize("effect", [0, 1], ids=["before", "after"])
def test_whenever_both_programs_are_ended_the_next_ones_measure_it_first(effect: int) -> None:
    total = 0

    def count(_command: str) -> None:
        nonlocal total
        total += 1

    site = Site(GOOD)
    site.cluster.on_command = count
    site.until_open()
    for fatal in range(total - 1):
        site, left = Site(GOOD), fatal + 1 + effect

        def end(_command: str) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise KilledError

        site.cluster.on_command = end
        with pytest.raises(KilledError):
            site.until_open()
        site.cluster.on_command = lambda _command: None
        site.start()
        if not site.cluster.is_open("w-0"):
            site.until_open()
        assert site.statuses() == {"cpu-speed": "ok", "memory-bandwidth": "ok"}, f"open unmeasured, ended at {fatal}"
        site.round()
        assert site.cluster.reservations == {}, f"ended at {fatal}"
