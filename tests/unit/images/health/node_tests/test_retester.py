"""Re-tests from beginning to end against a small Slurm, whenever the program is ended and whoever interferes."""

from __future__ import annotations

from typing import Any

import pytest

from images.health.contract import Result, Status
from images.health.node_tests.program import NodeTester
from images.health.node_tests.results import Record, decode, encode
from images.health.node_tests.settings import parse
from images.health.node_tests.slurm import TestSlurm
from images.health.slurm import Slurm
from images.health.watch.decide import Policy as WatchPolicy
from images.health.watch.limit import Limit
from images.health.watch.watcher import Watcher
from tests.fakes.node_tests_cluster import FakeCluster, Job
from tests.unit.images.health.node_tests.told import told

REASON = "health/cpu-speed [hardware]: events 212 events/s (at least 1000 expected)"
SETTINGS = {
    "tests": ["cpu-speed"],
    "max_under_test": "100%",
    "intervals": {"cpu-speed": 9_000_000},
    "platforms": {"pool": "machine"},
    "expected": {"machine": {"cpu-speed": {"events": 1000}}},
}
GOOD, BAD = told("events per second: 5000"), told("events per second: 90.5")


class KilledError(Exception):
    pass


class Site:
    """A cluster in which one node was drained for a test long ago, with the program in it."""

    def __init__(self, found: str = GOOD, *, count: int = 1, **settings: Any) -> None:
        self.found = found
        self.cluster = FakeCluster(count, measure=self.measure)
        self.settings = parse({**SETTINGS, **settings})
        self.log: list[str] = []
        failed = Result(status=Status.FAIL, fault="hardware", message="events 212 events/s (at least 1000 expected)")
        for name in self.cluster.nodes:
            record = Record(at=self.cluster.now - 3000, result=failed)
            self.cluster.nodes[name].extra = encode({"cpu-speed": record}, "")
            self.cluster.drain(name, REASON)
        self.cluster.now += 1800
        self.start()

    def measure(self, _job: Job) -> str:
        return self.found

    def start(self, *, dry_run: bool = False) -> None:
        wall, slurm = self.cluster.wall, TestSlurm(runner=self.cluster, settings=self.settings)
        self.tester = NodeTester(slurm=slurm, log=self.log.append, dry_run=dry_run, wall=wall)

    def round(self, seconds: int = 3) -> None:
        self.cluster.now += seconds
        self.tester.round()

    def rounds(self, number: int) -> None:
        for _ in range(number):
            self.round()

    def status(self, name: str = "w-0") -> Status:
        return decode(self.cluster.extras[name])["cpu-speed"].result.status

    def run_test(self) -> None:
        """Until the test runs."""
        self.rounds(2)
        assert len(self.cluster.running()) == 1


def test_a_node_that_is_well_again_comes_back_and_nobody_had_it_before_that_was_known() -> None:
    site = Site()
    site.cluster.forgets_reasons = True  # as with accounting
    site.round()
    assert (list(site.cluster.reservations), site.cluster.drained) == (["health-test-w-0"], {"w-0"})
    site.cluster.users_wait = [("main", "Resources")]
    site.rounds(6)
    assert (site.cluster.drained, [job.name for job in site.cluster.running()]) == (set(), ["health-cpu-speed:w-0"])
    site.cluster.end()
    site.round()
    assert (site.status(), site.cluster.is_open("w-0")) == (Status.OK, False)
    site.rounds(5)
    assert site.cluster.is_open("w-0")
    assert (len(site.cluster.jobs), site.cluster.reservations) == (1, {})


def test_a_node_that_is_bad_again_waits_for_another_half_hour() -> None:
    site = Site(BAD)
    site.run_test()
    site.cluster.end()
    site.rounds(10)
    assert (site.cluster.drained, site.cluster.reservations, len(site.cluster.jobs)) == ({"w-0"}, {}, 1)
    reason = "health/cpu-speed [hardware]: events 90.5 events/s (at least 1000 expected)"
    assert (site.cluster.nodes["w-0"].reason, site.status()) == (reason, Status.FAIL)
    site.round(site.cluster.nodes["w-0"].reason_at + 1800 - site.cluster.now)
    assert list(site.cluster.reservations) == ["health-test-w-0"]


def commands_until_the_end(found: str, state: str) -> int:
    """How many commands a whole re-test takes."""
    site = Site(found)
    count = 0

    def note(_command: str) -> None:
        nonlocal count
        count += 1

    site.cluster.on_command = note
    play(site, state)
    return count


def play(site: Site, state: str) -> None:
    for _ in range(9):
        site.round()
        site.cluster.end(state)


@pytest.mark.parametrize(
    ("found", "state", "effect"),
    [
        (GOOD, "COMPLETED", "before"),
        (GOOD, "COMPLETED", "after"),
        (BAD, "COMPLETED", "after"),
        (GOOD, "CANCELLED", "before"),
    ],
)
def test_whenever_the_program_is_ended_the_next_one_brings_it_to_an_end(found: str, state: str, effect: str) -> None:
    for fatal in range(commands_until_the_end(found, state) - 1):
        site = Site(found)
        kill_at(site, fatal, state, effect)
        for _ in range(12):
            site.round()
            site.cluster.end(state)
            opened = site.cluster.is_open("w-0")
            assert not opened or site.status() is Status.OK, f"open to users, ended at command {fatal}"
        well = (found, state) == (GOOD, "COMPLETED")
        assert site.cluster.reservations == {}, f"ended at command {fatal}"
        # A test that was ended before it began waits for the next half hour.
        assert (site.cluster.drained == set()) == (site.status() is Status.OK), f"ended at command {fatal}"
        assert well or site.cluster.drained == {"w-0"}
        assert not site.cluster.drained or site.cluster.nodes["w-0"].reason.startswith("health/cpu-speed [hardware]: ")


def kill_at(site: Site, fatal: int, state: str, effect: str) -> None:
    """Play until the program is ended at a command, before or after that has done its work, and start it again."""
    count = 0

    def end(_command: str) -> None:
        nonlocal count
        count += 1
        if count == fatal + 1 + (effect == "after"):
            raise KilledError

    site.cluster.on_command = end
    with pytest.raises(KilledError):
        play(site, state)
    site.cluster.on_command = lambda _command: None
    site.start()


def test_a_result_that_cannot_be_written_keeps_the_node_apart() -> None:
    site = Site()
    site.run_test()
    site.cluster.end()
    site.cluster.denied = frozenset({"scontrol update"})
    site.rounds(5)
    assert not site.cluster.is_open("w-0")
    assert list(site.cluster.reservations) == ["health-test-w-0"]
    site.cluster.denied = frozenset()
    site.rounds(2)
    assert site.cluster.is_open("w-0")


@pytest.mark.parametrize("refused", ["sbatch", "scontrol delete", "scontrol create"])
def test_what_slurm_refuses_opens_no_node(refused: str) -> None:
    site = Site(BAD)
    site.cluster.denied = frozenset({refused})
    for _ in range(8):
        site.round()
        site.cluster.end()
        assert not site.cluster.is_open("w-0")
    assert site.cluster.drained == {"w-0"}
    assert sum("cannot" in line for line in site.log) == 1
    site.cluster.denied = frozenset()
    site.rounds(3)
    assert site.cluster.reservations == {}


def test_a_reservation_of_that_name_that_is_somebody_else_s_stays() -> None:
    site = Site()
    site.cluster.reservations["health-test-w-0"] = ("w-0", "ask Bob")
    site.rounds(5)
    assert site.cluster.reservations == {"health-test-w-0": ("w-0", "ask Bob")}
    assert (site.cluster.drained, site.cluster.jobs) == ({"w-0"}, [])


@pytest.mark.parametrize(("found", "changes"), [(GOOD, 0), (BAD, 1)])
def test_watcher_and_re_test_do_not_contend(found: str, changes: int) -> None:
    site = Site(found)
    site.cluster.now += 3600
    lines: list[str] = []
    policy = WatchPolicy(max_drained=Limit.parse("1"))
    watcher = Watcher(slurm=Slurm(runner=site.cluster), policy=policy, log=lines.append, wall=site.cluster.wall)
    drains = []
    site.cluster.on_command = lambda command: drains.append(command) if "state=drain" in command else None
    for _ in range(40):
        watcher.round()
        site.round()
        watcher.round()
        site.cluster.end()
    assert (site.cluster.reservations, len(site.cluster.jobs)) == ({}, 1)
    assert site.cluster.drained == ({"w-0"} if found == BAD else set())
    assert len(drains) == changes, "who comes first drains, and nobody does so again"
    assert [line for line in lines if "resume" in line] == []


def test_no_more_nodes_than_the_limit_are_measured_again_at_a_time() -> None:
    site = Site(BAD, count=20, max_under_test="10%")
    for _ in range(60):
        site.round()
        assert len(site.cluster.reservations) <= 2
        site.cluster.end()
    assert len(site.cluster.jobs) == 20, "all had their turn"
