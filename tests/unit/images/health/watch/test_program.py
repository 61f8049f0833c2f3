"""The program around the rounds: settings, pauses, one round by hand."""

from __future__ import annotations

import pytest

from images.common.command import Result
from images.health.node_tests.catalog import TESTS
from images.health.slurm import Slurm
from images.health.watch import program
from images.health.watch.decide import Policy
from images.health.watch.limit import Limit
from images.health.watch.machines import Machines
from images.health.watch.program import LONGEST_POLL_SECONDS, build, once, policy_from, rules_from, watch
from images.health.watch.release import Rules
from images.health.watch.watcher import Watcher
from tests.fakes.commands import FakeClock, FakeRunner
from tests.unit.images.health.watch.followed import Followed
from tests.unit.images.health.watch.views import policy


class Ended(Exception):  # noqa: N818
    """Ends a loop that has no end."""


def watcher(runner: FakeRunner) -> Watcher:
    return Watcher(slurm=Slurm(runner=runner), policy=policy(), log=lambda _: None)


NO_NODES = Result(code=0, stdout='{"nodes": []}')
AWAY = Result(code=1, stderr="Unable to contact slurm controller")


def test_the_settings_have_defaults_that_spare_the_cluster() -> None:
    assert policy_from({}) == Policy(max_drained=Limit(number=10, percent=True), report_only=frozenset(TESTS))


def test_the_settings_are_read() -> None:
    env = {"MAX_DRAINED": "3", "REPORT_ONLY": "dns, clock", "REQUEUE_AFTER": "600"}
    assert policy_from(env) == Policy(
        max_drained=Limit(number=3), report_only=frozenset({"dns", "clock", *TESTS}), requeue_after=600.0
    )
    assert policy_from({"REQUEUE_AFTER": "0"}).requeue_after == 0
    tested = policy_from({"MEASURE_NEW": "yes"})
    assert (tested.measures_new, tested.report_only) == (True, frozenset())


def test_no_machine_is_released_unless_the_site_wants_that() -> None:
    assert rules_from({}, "ns") is None
    assert rules_from({"RELEASE": "no", "RELEASE_CONDITION": "C"}, "ns") is None
    assert not policy_from({"RELEASE": "no"}).frees_broken
    assert rules_from({"RELEASE": "cordon"}, "ns") == Rules(namespace="ns", max_unavailable=Limit(number=1), after=600)
    env = {
        "RELEASE": "evict",
        "RELEASE_AFTER": "0",
        "MAX_UNAVAILABLE": "5%",
        "RELEASE_CONDITION": "HardwareIssuesSuspected",
        "REPORT_ONLY": "gpu-xid",
    }
    assert rules_from(env, "ns") == Rules(
        namespace="ns",
        evict=True,
        max_unavailable=Limit(number=5, percent=True),
        after=0,
        condition="HardwareIssuesSuspected",
        report_only=frozenset({"gpu-xid"}),
    )
    assert policy_from(env).frees_broken


@pytest.mark.parametrize("env", [{}, {"MACHINES": "no", "KUBERNETES_SERVICE_HOST": "10.0.0.1", "NAMESPACE": "ns"}])
def test_outside_of_kubernetes_or_unasked_no_machine_is_looked_at(env: dict[str, str]) -> None:
    log: list[str] = []
    assert build(env, log.append, dry_run=False).machines is None
    assert "Slurm's records alone" in log[0]


@pytest.mark.parametrize(
    ("wants", "dry_run", "acts", "sees"),
    [("no", False, True, False), ("yes", False, True, True), ("yes", True, False, False)],
)
def test_conditions_are_written_only_if_asked_for_and_nothing_in_a_dry_run(
    monkeypatch: pytest.MonkeyPatch, wants: str, dry_run: bool, acts: bool, sees: bool
) -> None:
    machines = Machines(pods=Followed({}), nodes=Followed({}), drain_conditions=frozenset())  # type: ignore[arg-type]
    monkeypatch.setattr(program, "follow_machines", lambda *_: machines)
    env = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "NAMESPACE": "ns", "CONDITIONS": wants}
    built = build(env, lambda _: None, dry_run=dry_run)
    assert built.machines is machines
    assert (built.teller is not None) is acts
    assert (built.teller is not None and built.teller.writes_conditions) is sees


@pytest.mark.parametrize(("way", "releases"), [("no", False), ("cordon", True), ("evict", True)])
def test_machines_are_released_only_if_asked_for(monkeypatch: pytest.MonkeyPatch, way: str, releases: bool) -> None:
    machines = Machines(pods=Followed({}), nodes=Followed({}))  # type: ignore[arg-type]
    monkeypatch.setattr(program, "follow_machines", lambda *_: machines)
    env = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "NAMESPACE": "ns", "RELEASE": way}
    built = build(env, lambda _: None, dry_run=False)
    assert (built.releaser is not None) is releases
    assert built._policy.frees_broken is releases


def test_a_slurmctld_that_is_away_is_waited_for_and_told_at_most_every_ten_seconds() -> None:
    clock, log = FakeClock(), list[str]()
    runner = FakeRunner({"scontrol show nodes": AWAY})

    def later() -> None:
        if clock.time > 60:
            runner.answers["scontrol show nodes"] = NO_NODES
        if clock.time > 100:
            raise Ended

    clock.on_sleep = later
    with pytest.raises(Ended):
        watch(watcher(runner), log.append, clock)
    assert 5 < len(log) <= 8
    assert log[0] == "waiting for slurmctld: Unable to contact slurm controller"
    assert 45 < len(runner.commands) < 55


@pytest.mark.parametrize(("takes", "pause"), [(0.1, 2.0), (1.0, 5.0), (60.0, LONGEST_POLL_SECONDS)])
def test_a_long_round_is_followed_by_a_longer_pause(takes: float, pause: float) -> None:
    clock = FakeClock()

    def slow(_argv: object) -> Result:
        clock.time += takes
        return NO_NODES

    def end() -> None:
        raise Ended

    clock.on_sleep = end
    with pytest.raises(Ended):
        watch(watcher(FakeRunner({"scontrol show nodes": slow})), lambda _: None, clock)
    assert clock.time == pytest.approx(takes + pause)


@pytest.mark.parametrize(("answer", "code"), [(NO_NODES, 0), (AWAY, 1)])
def test_one_round_by_hand_says_by_its_exit_code_whether_slurmctld_answered(answer: Result, code: int) -> None:
    log: list[str] = []
    assert once(watcher(FakeRunner({"scontrol show nodes": answer})), log.append, FakeClock()) == code
    assert bool(log) is bool(code)


def test_a_wrong_setting_ends_the_program(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(program, "end_on_sigterm", lambda: None)
    monkeypatch.setattr("sys.argv", ["health-watch", "--once"])
    monkeypatch.setenv("MAX_DRAINED", "a lot")
    assert program.main() == 2
    assert "the settings cannot be used" in capsys.readouterr().out
