"""A node that may be another machine than before takes no jobs until it was measured: watcher and tests together."""

from __future__ import annotations

import pytest

from images.common.health.contract import Result, Status
from images.common.wait import Clock
from images.health.node_tests.program import measured
from tests.unit.images.health.node_tests.site import Site

GONE = "health/gpu-presence [hardware]: 7 of 8 GPUs"
SLOW = "health/cpu-speed [hardware]: events 90.5 events/s (at least 1000 expected)"
TESTS = ("cpu-speed", "memory-bandwidth")
TRIES = 40


class KilledError(Exception):
    pass


def replaced(reason: str = GONE, *, count: int = 1) -> Site:
    """A node that was drained, and whose slurmd has started since."""
    site = Site(count, *TESTS)
    site.rounds(6)
    site.cluster.drain("w-0", reason)
    site.cluster.nodes["w-0"].started_at = site.cluster.now + 60
    site.cluster.now += 700
    site.cluster.jobs.clear()
    site.was_open.clear()
    return site


def until_open(site: Site) -> None:
    for _ in range(TRIES):
        site.round()
        if site.was_open[-1]:
            return
    pytest.fail(f"still not open: {site.cluster.nodes} {site.log}")


@pytest.mark.parametrize("reason", [GONE, SLOW], ids=["a check", "a test"])
def test_a_new_machine_is_open_when_all_its_tests_have_run_and_no_user_had_it_before(reason: str) -> None:
    site = replaced(reason)
    until_open(site)
    assert site.ran() == [*TESTS]
    assert site.statuses() == {"cpu-speed": "ok", "memory-bandwidth": "ok"}
    assert site.was_open == [*[False] * (len(site.was_open) - 1), True]
    assert (site.cluster.reservations, site.cluster.drained) == ({}, set())


def test_one_that_is_slow_is_measured_twice_and_then_drained_for_that() -> None:
    site = replaced()
    site.slow = lambda job: job.test == "memory-bandwidth"
    site.rounds(2 * TRIES)
    assert site.ran() == [*TESTS, "memory-bandwidth"]
    assert site.reason.startswith("health/memory-bandwidth [hardware]: write 1.0")
    assert (any(site.was_open), site.cluster.reservations) == (False, {})


def test_a_node_that_is_drained_for_a_test_and_is_the_same_machine_is_not_measured_again() -> None:
    site = Site()
    site.rounds(3)
    site.cluster.drain("w-0", SLOW)
    site.cluster.jobs.clear()
    site.rounds(TRIES, 600)
    assert (site.ran(), site.cluster.drained) == ([], {"w-0"})


def test_what_cannot_be_checked_does_not_keep_it_for_ever() -> None:
    site = replaced()
    site.cluster.measure = lambda _job: ""
    until_open(site)
    assert site.statuses() == {"cpu-speed": "not checked", "memory-bandwidth": "not checked"}


def test_without_tests_of_nodes_it_is_open_as_soon_as_its_check_is_well_and_a_drain_for_them_is_lifted() -> None:
    site = replaced()
    site.rounds(3)
    assert site.cluster.reservations
    site.start(measures_new=False)
    site.watcher.round()
    site.watcher.round()
    assert site.cluster.is_open("w-0")


def test_an_administrator_s_drain_ends_the_measuring_and_stays() -> None:
    for rounds in range(1, 7):
        site = replaced()
        site.rounds(rounds)
        site.look()
        if site.cluster.is_open("w-0"):
            break
        site.cluster.drain("w-0", "fan is replaced")
        site.rounds(5)
        assert (site.reason, site.cluster.drained) == ("fan is replaced", {"w-0"})
        assert (site.cluster.reservations, site.cluster.running()) == ({}, [])
    else:
        pytest.fail("never open")


def test_a_check_that_fails_meanwhile_drains_it_as_any_other_node() -> None:
    site = replaced(count=2)
    site.rounds(4)
    full = Result(status=Status.FAIL, fault="hardware", message="disk is gone")
    site.report("w-0", disks=full)
    site.watcher.round()
    assert site.reason.startswith("health/disks [hardware]")
    site.rounds(TRIES)
    assert site.reason.startswith("health/disks [hardware]"), "which reports well only without that check"
    assert site.cluster.reservations == {}


def test_one_that_goes_down_meanwhile_is_kept_from_users_and_measured_when_it_is_back() -> None:
    site = replaced()
    site.rounds(3)
    site.cluster.nodes["w-0"].states = {"DOWN"}
    site.rounds(3)
    assert (site.cluster.reservations, site.cluster.drained) == ({}, {"w-0"})
    site.cluster.nodes["w-0"].states = {"IDLE", "DRAIN"}
    until_open(site)
    assert set(site.statuses().values()) == {"ok"}


def test_a_reservation_whose_node_is_gone_is_deleted_and_those_of_others_are_not() -> None:
    site = replaced()
    site.cluster.reservations["health-test-w-7"] = ("w-7", "re-test of cpu-speed, last run never: of a former version")
    site.cluster.reservations["health-test-w-8"] = ("w-8", "ask Bob")
    site.cluster.reservations["course"] = ("w-9", "re-test of w-9")
    site.round()
    assert {"health-test-w-8", "course"} <= site.cluster.reservations.keys()
    assert "health-test-w-7" not in site.cluster.reservations


@pytest.mark.parametrize("effect", [0, 1], ids=["before", "after"])
def test_whenever_both_programs_are_ended_the_next_ones_measure_it_first(effect: int) -> None:
    total = 0

    def count(_command: str) -> None:
        nonlocal total
        total += 1

    site = replaced()
    site.cluster.on_command = count
    until_open(site)
    for fatal in range(total - 1):
        site, left = replaced(), fatal + 1 + effect

        def end(_command: str) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise KilledError

        site.cluster.on_command = end
        with pytest.raises(KilledError):
            until_open(site)
        site.cluster.on_command = lambda _command: None
        site.start()
        if not site.cluster.is_open("w-0"):
            until_open(site)
        assert site.statuses() == {"cpu-speed": "ok", "memory-bandwidth": "ok"}, f"open unmeasured, ended at {fatal}"
        site.round()
        assert site.cluster.reservations == {}, f"ended at {fatal}"


class Rounds(Clock):
    """While somebody waits, the programs go on."""

    def __init__(self, site: Site) -> None:
        self.site = site

    def sleep(self, seconds: float) -> None:
        self.site.round(int(seconds))


def by_hand(site: Site, name: str = "w-0") -> tuple[int, list[str]]:
    said: list[str] = []
    return measured(site.slurm, name, said.append, Rounds(site), site.cluster.wall), said


def test_by_hand_a_node_is_measured_at_once_and_what_is_found_is_told() -> None:
    site = Site(1, *TESTS)
    site.rounds(6)
    code, said = by_hand(site)
    assert (code, site.ran()) == (0, [*TESTS, *TESTS])
    assert said[1:] == ["ok cpu-speed: events 5000 events/s", "ok memory-bandwidth: write 10.47 GB/s", "w-0 takes jobs"]
    site.slow = lambda job: job.test == "cpu-speed"
    code, said = by_hand(site)
    assert (code, said[-1]) == (1, f"w-0 is drained: {SLOW}")
    site.slow = lambda _job: False
    assert by_hand(site)[0] == 0, "one that is drained for a test, too"


def test_by_hand_nothing_is_done_to_a_node_that_is_kept_from_jobs_for_something_else() -> None:
    site = Site()
    assert by_hand(site, "w-9") == (2, ["there is no node w-9"])
    for reason in ("fan is replaced", "health/disks [node]: full"):
        site.cluster.drain("w-0", reason)
        code, (said,) = by_hand(site)
        assert (code, reason in said, site.reason, site.ran()) == (2, True, reason, [])


def test_by_hand_the_end_of_the_wait_is_told_whatever_happens_meanwhile() -> None:
    site = Site()

    class Carol(Rounds):
        def sleep(self, seconds: float) -> None:
            del seconds
            self.site.cluster.drain("w-0", "mine")

    said: list[str] = []
    assert measured(site.slurm, "w-0", said.append, Carol(site), site.cluster.wall) == 1
    assert said[-1] == "w-0 is drained: mine"
