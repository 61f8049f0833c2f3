"""Idle nodes are measured, users do not wait, a node that is slow twice is drained by the watcher."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping

import pytest

from images.common.health.report import measured_in
from images.common.health.slurm import Slurm, SlurmError
from images.common.wait import Clock
from images.health.node_tests.program import ByHand, NodeTester
from images.health.node_tests.slurm import Settings, TestSlurm
from images.health.watch.decide import Limit, Policy
from images.health.watch.watcher import Watcher
from tests.fakes.node_tests_cluster import FakeCluster, Job

FIGURES = {"events": ["5000"], "write": ["9983.30"]}
SLOW_FIGURES = {"events": ["90.5"], "write": ["990.00"]}
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
        return json.dumps(
            {"code": 0, "figures": SLOW_FIGURES if self.slow(job) else FIGURES, "faults": [], "platform": ""}
        )

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


DAY = 86_400
SLOW = "health/cpu-speed [hardware]: events 90.5 events/s (at least 1000 expected)"
TESTS = ("cpu-speed", "memory-bandwidth")


def test_an_idle_node_is_measured_once_a_day_and_the_figure_is_in_its_record() -> None:
    site = Site(2)
    site.rounds(6)
    assert site.ran() == ["cpu-speed"] * 2
    assert measured_in(site.cluster.nodes["w-1"].extra)["cpu-speed"].result.message == "events 5000 events/s"
    site.rounds(4, DAY)
    assert len(site.ran()) >= 4


def test_a_node_that_is_slow_twice_is_drained_with_the_figure_and_stays_so() -> None:
    site = Site(3, slow=lambda job: job.node == "w-0")
    site.rounds(5)
    assert site.statuses() == {"cpu-speed": "warn"}
    assert site.cluster.drained == set(), "measured once"
    site.rounds(8, 60)
    assert site.reason == SLOW
    site.slow = lambda _job: False
    site.rounds(50, 600)
    assert site.cluster.drained == {"w-0"}
    site.cluster.nodes["w-0"].states.discard("DRAIN")  # an administrator gives it back
    site.rounds(20, 60)
    assert site.statuses() == {"cpu-speed": "ok"}


def test_a_node_that_has_started_since_it_failed_is_measured_again() -> None:
    """It may be another machine, and nothing else would say that it is well."""
    site = Site(3, slow=lambda job: job.node == "w-0")
    site.rounds(13, 60)
    assert site.reason == SLOW
    site.cluster.nodes["w-0"].started_at = site.cluster.now + 1
    site.rounds(8, 60)
    assert site.reason == SLOW, "it is as slow as it was"
    assert sum(line.startswith("open w-0") for line in site.log) == 1
    site.slow = lambda _job: False
    site.cluster.nodes["w-0"].started_at = site.cluster.now + 1
    site.cluster.nodes["w-0"].states.add("MIXED")
    site.rounds(2, 60)
    assert (site.cluster.drained, site.statuses()) == (set(), {"cpu-speed": "warn"})
    site.cluster.nodes["w-0"].states.discard("MIXED")
    site.rounds(8, 60)
    assert (site.cluster.drained, site.statuses()) == (set(), {"cpu-speed": "ok"})


@pytest.mark.parametrize("why", ["Resources", "None"])
def test_a_test_is_ended_as_soon_as_a_job_waits_and_counts_as_not_having_been(why: str) -> None:
    site = Site(20)
    site.look()
    assert len(site.cluster.running()) == 2, "a tenth of the nodes"
    site.cluster.users_wait = [why]
    site.look()
    assert site.cluster.running() == []
    site.look()
    assert (site.cluster.extras, len(site.cluster.jobs)) == ({}, 2)
    site.cluster.users_wait = ["Dependency", "QOSMaxJobsPerUserLimit"]
    site.look()
    assert len(site.cluster.running()) == 2


def test_a_test_that_does_not_start_is_ended() -> None:
    site = Site(1)
    site.look()
    site.cluster.jobs[0].state = "PENDING"
    site.look(30)
    assert site.cluster.jobs[0].state == "PENDING"
    site.look(60)
    assert site.cluster.jobs[0].state == "CANCELLED"


@pytest.mark.parametrize("states", [{"MIXED"}, {"IDLE", "PLANNED"}, {"IDLE", "POWERED_DOWN"}, {"IDLE", "DRAIN"}])
def test_other_nodes_are_left_alone(states: set[str]) -> None:
    site = Site()
    site.cluster.nodes["w-0"].states = states
    site.cluster.nodes["w-0"].reason = "fan is replaced" if "DRAIN" in states else ""
    site.rounds(3)
    assert site.ran() == []


def test_what_a_node_has_not_does_not_run_there() -> None:
    site = Site(1, "nccl-node", "nccl-infiniband", "cpu-speed")
    site.look()
    assert {job.test for job in site.cluster.jobs} == {"cpu-speed"}
    assert [test.name for test in site.settings.fit(site.slurm.nodes()[0])] == ["nccl-node", "cpu-speed"]
    site.cluster.gpus = 0
    assert [test.name for test in site.settings.fit(site.slurm.nodes()[0])] == ["cpu-speed"]


def test_a_restart_takes_up_what_runs_and_what_has_ended() -> None:
    site = Site()
    site.look()
    site.start()
    site.look()
    assert len(site.cluster.jobs) == 1, "nothing is started twice"
    site.cluster.end()
    site.start()
    site.round(299)
    assert site.statuses() == {"cpu-speed": "ok"}


def test_a_job_that_ended_without_a_word_is_not_checked_and_one_that_was_stopped_has_not_been() -> None:
    for state, statuses in (("TIMEOUT", {"cpu-speed": "not checked"}), ("CANCELLED", {})):
        site = Site()
        site.cluster.measure = lambda _job: ""
        site.look()
        site.cluster.end(state)
        site.look()
        assert site.statuses() == statuses


def test_a_result_that_could_not_be_written_is_written_later_and_what_others_keep_there_stays() -> None:
    site = Site()
    site.cluster.nodes["w-0"].extra = '{"rack": 7}'
    site.round()
    site.cluster.denied = frozenset({"scontrol update"})
    site.look()
    site.look()
    refused = [line for line in site.log if "cannot" in line]
    assert refused == ["cannot w-0: ok cpu-speed: events 5000 events/s: Access denied"]
    site.cluster.denied = frozenset()
    site.look()
    assert (site.statuses(), json.loads(site.cluster.extras["w-0"])["rack"]) == ({"cpu-speed": "ok"}, 7)


# ---------------------------------------------------------------- by hand


def kept_from_users(site: Site) -> bool:
    return "w-0" in site.cluster.drained or bool(site.cluster.reservations)


def test_by_hand_a_node_is_measured_at_once_and_users_have_it_only_when_it_is_well() -> None:
    site = Site(1, *TESTS)
    site.rounds(6)
    site.cluster.reservations["health-test-w-0"] = ("w-0", "re-test of w-0")  # of one that was killed
    code, said = site.by_hand()
    assert (code, site.ran()) == (0, [*TESTS, *TESTS])
    assert said[1:] == ["ok cpu-speed: events 5000 events/s", "ok memory-bandwidth: write 10.47 GB/s", "w-0 takes jobs"]
    site.slow = lambda job: job.test == "cpu-speed"
    code, said = site.by_hand()
    assert (code, said[-1], site.cluster.reservations) == (1, f"w-0 is drained: {SLOW}", {})
    site.slow = lambda _job: False
    was_kept: list[bool] = []
    code, _ = site.by_hand(meanwhile=lambda: was_kept.append(kept_from_users(site)))
    assert (code, all(was_kept), kept_from_users(site)) == (0, True, False)


def test_by_hand_nothing_is_done_to_a_node_that_is_kept_from_jobs_for_something_else() -> None:
    site = Site()
    assert site.by_hand("w-9") == (2, ["there is no node w-9"])
    for reason in ("fan is replaced", "health/disks [node]: full"):
        site.cluster.drain("w-0", reason)
        code, (said,) = site.by_hand()
        assert (code, reason in said, site.reason, site.ran()) == (2, True, reason, [])


def test_an_administrator_s_drain_ends_the_measuring_and_stays() -> None:
    site = Site()
    code, said = site.by_hand(meanwhile=lambda: site.cluster.drain("w-0", "mine"))
    assert (code, said[-1]) == (1, "w-0 is drained: mine")
    assert (site.cluster.reservations, site.cluster.running()) == ({}, [])


def test_what_one_that_was_killed_has_left_is_given_back_and_reservations_of_others_are_not() -> None:
    site = Site()
    theirs = {"course": ("w-9", "ask Bob"), "health-test-w-8": ("w-8", "a course")}
    site.cluster.reservations |= {"health-test-w-7": ("w-7", "re-test of w-7"), **theirs}
    site.rounds(3)
    assert len(site.cluster.reservations) == 3, "one that measures may be between two tests"
    site.rounds(30)
    assert site.cluster.reservations == theirs


class KilledError(Exception):
    pass


@pytest.mark.parametrize("is_killed", [False, True])
def test_by_hand_a_slurmctld_that_is_away_for_long_ends_nothing_and_loses_no_drain(is_killed: bool) -> None:
    site = Site(slow=lambda _job: True)
    site.cluster.drain("w-0", SLOW)
    calls: list[int] = []

    def meanwhile() -> None:
        calls.append(1)
        site.cluster.away = len(calls) < 60
        if is_killed and len(calls) == 1:
            raise KilledError

    with contextlib.suppress(KilledError):
        code, said = site.by_hand(meanwhile=meanwhile)
        assert (code, said[-1]) == (1, f"w-0 is drained: {SLOW}")
    assert (site.reason, site.cluster.drained, site.cluster.reservations) == (SLOW, {"w-0"}, {})
    assert len(calls) >= 60
