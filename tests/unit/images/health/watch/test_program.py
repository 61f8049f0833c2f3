"""The program around the rounds: settings and pauses."""

from __future__ import annotations

import pytest

from images.common.command import Result
from images.common.health.slurm import Slurm, keep_looking
from images.health.node_tests.catalog import TESTS
from images.health.watch import program
from images.health.watch.decide import Limit, Policy
from images.health.watch.machines import Machines
from images.health.watch.program import GONE, build, policy_from, rules_from
from images.health.watch.release import Rules
from images.health.watch.watcher import Watcher
from tests.fakes.commands import FakeClock, FakeRunner
from tests.unit.images.health.watch.release_cluster import Followed
from tests.unit.images.health.watch.views import policy


class Ended(Exception):  # noqa: N818
    """Ends a loop that has no end."""


def test_the_settings_have_defaults_that_spare_the_cluster() -> None:
    without_tests = GONE | TESTS.keys()
    assert policy_from({}) == Policy(max_drained=Limit(number=10, percent=True), report_only=without_tests)
    assert rules_from({}) is None
    assert rules_from({"RELEASE": "cordon"}) == Rules(max_unavailable=Limit(number=1), after=600)


def test_the_settings_are_read() -> None:
    env = {
        "MAX_DRAINED": "3",
        "REPORT_ONLY": "dns, munge",
        "REQUEUE_AFTER": "600",
        "TESTS": "yes",
        "RELEASE": "cordon",
        "RELEASE_AFTER": "0",
        "MAX_UNAVAILABLE": "5%",
        "RELEASE_CONDITION": "HardwareIssuesSuspected",
    }
    assert policy_from(env) == Policy(
        max_drained=Limit(number=3), report_only=GONE | {"dns", "munge"}, requeue_after=600.0, frees_broken=True
    )
    assert rules_from(env) == Rules(
        max_unavailable=Limit(number=5, percent=True),
        after=0,
        condition="HardwareIssuesSuspected",
        report_only=frozenset({"dns", "munge"}),
    )


def test_machines_are_looked_at_and_released_only_if_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    machines = Machines(pods=Followed({}), nodes=Followed({}))
    monkeypatch.setattr(program, "follow_machines", lambda *_: machines)
    in_pod = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "NAMESPACE": "ns"}
    for env, follows, releases in [
        ({**in_pod, "MACHINES": "no"}, False, False),
        (in_pod, True, False),
        ({**in_pod, "RELEASE": "cordon"}, True, True),
    ]:
        built = build(env, lambda _: None)
        assert (built.machines is machines, built.releaser is not None) == (follows, releases)


def test_a_slurmctld_that_is_away_is_waited_for_and_told_at_most_every_ten_seconds() -> None:
    clock, log = FakeClock(), list[str]()
    runner = FakeRunner({"scontrol show nodes": Result(code=1, stderr="Unable to contact slurm controller")})
    watcher = Watcher(slurm=Slurm(runner=runner), policy=policy(), log=lambda _: None)

    def later() -> None:
        if clock.time > 60:
            runner.answers["scontrol show nodes"] = Result(code=0, stdout='{"nodes": []}')
        if clock.time > 100:
            raise Ended

    clock.on_sleep = later
    with pytest.raises(Ended):
        keep_looking(watcher.round, 2.0, 10.0, log.append, clock)
    assert 5 < len(log) <= 8
    assert log[0] == "waiting for slurmctld: Unable to contact slurm controller"
    assert 45 < len(runner.commands) < 55
