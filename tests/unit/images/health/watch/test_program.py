"""The program around the rounds: settings and pauses."""

from __future__ import annotations

import json
from typing import Any

import pytest

from config.sections.health import Health
from images.common.command import Result
from images.common.health.slurm import Slurm, keep_looking
from images.health.node_tests.catalog import TESTS
from images.health.watch import watcher
from images.health.watch.decide import Limit, Policy
from images.health.watch.machines import Machines
from images.health.watch.release import Rules
from images.health.watch.watcher import GONE, Watcher, build
from slurm.health import watch_settings
from tests.fakes.commands import FakeClock, FakeRunner
from tests.unit.images.health.watch.views import Followed, policy


class Ended(Exception):  # noqa: N818
    """Ends a loop that has no end."""


def built(monkeypatch: pytest.MonkeyPatch, log: list[str] | None = None, **health: Any) -> Watcher:
    """The watcher of a stack file, in a pod."""
    follow: Any = lambda *_: Machines(pods=Followed({}), nodes=Followed({}))  # noqa: E731
    monkeypatch.setattr(watcher, "follow_machines", follow)
    in_pod = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "NAMESPACE": "ns"}
    settings = json.loads(watch_settings(Health.model_validate(health)))
    return build(settings, in_pod, (log if log is not None else []).append)


def test_without_settings_the_watcher_follows_machines_and_releases_none(monkeypatch: pytest.MonkeyPatch) -> None:
    made = built(monkeypatch)
    limit = Limit(number=10, percent=True)
    assert made.policy == Policy(max_drained=limit, report_only=GONE | TESTS.keys())
    assert (made.machines is not None, made.releaser) == (True, None)


def test_the_watcher_does_what_the_stack_file_says(monkeypatch: pytest.MonkeyPatch) -> None:
    machines = {
        "requeue_after": 60, "release": "cordon", "release_after": 0, "release_condition": "Suspected",
        "max_unavailable": "5%",
    }  # fmt: skip
    health = {"report_only": ["munge"], "disabled": ["dns"], "tests": {"enabled": True}, "machines": machines}
    made = built(monkeypatch, max_drained=3, **health)  # type: ignore[arg-type]
    told = frozenset({"dns", "munge"})
    assert made.policy == Policy(
        max_drained=Limit(number=3), report_only=GONE | told, requeue_after=60.0, frees_broken=True
    )
    assert made.releaser is not None
    limit = Limit(number=5, percent=True)
    assert made.releaser.rules == Rules(max_unavailable=limit, after=0, condition="Suspected", report_only=told)


def test_machines_that_are_not_followed_are_not_looked_at_and_their_drains_are_lifted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log: list[str] = []
    made = built(monkeypatch, log, machines={"follow": False})
    assert (made.machines, "kubernetes" in made.policy.report_only) == (None, True)
    assert log == ["nodes are watched by Slurm's records alone"]


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
