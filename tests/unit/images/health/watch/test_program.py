"""The program around the rounds: settings, pauses, one round by hand, and what Kubernetes is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from images.common.command import Result
from images.common.health.slurm import Record, Slurm, keep_looking
from images.common.kubernetes import Kube, KubeError
from images.health.node_tests.catalog import TESTS
from images.health.watch import program
from images.health.watch.decide import Action, Kind, Limit, Policy
from images.health.watch.kubernetes import MOST_WAITING, Teller
from images.health.watch.machines import Machine, Machines, Place
from images.health.watch.program import build, once, policy_from, rules_from
from images.health.watch.release import Rules
from images.health.watch.watcher import Watcher
from tests.fakes.commands import FakeClock, FakeRunner
from tests.unit.images.health.watch.release_cluster import Followed
from tests.unit.images.health.watch.views import NOW, policy, view


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
    tested = policy_from({"MEASURE_NEW": "yes"})
    assert (tested.measures_new, tested.report_only) == (True, frozenset())


def test_no_machine_is_released_unless_the_site_wants_that() -> None:
    assert rules_from({}) is None
    assert rules_from({"RELEASE": "cordon"}) == Rules(max_unavailable=Limit(number=1), after=600)
    env = {
        "RELEASE": "evict",
        "RELEASE_AFTER": "0",
        "MAX_UNAVAILABLE": "5%",
        "RELEASE_CONDITION": "HardwareIssuesSuspected",
        "REPORT_ONLY": "gpu-xid",
    }
    assert rules_from(env) == Rules(
        evict=True,
        max_unavailable=Limit(number=5, percent=True),
        after=0,
        condition="HardwareIssuesSuspected",
        report_only=frozenset({"gpu-xid"}),
    )
    assert policy_from(env).frees_broken


def test_outside_of_kubernetes_or_unasked_no_machine_is_looked_at() -> None:
    for env in ({}, {"MACHINES": "no", "KUBERNETES_SERVICE_HOST": "10.0.0.1", "NAMESPACE": "ns"}):
        log: list[str] = []
        assert build(env, log.append, dry_run=False).machines is None
        assert "Slurm's records alone" in log[0]


def test_machines_are_released_only_if_asked_for_and_nothing_is_written_in_a_dry_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machines = Machines(pods=Followed({}), nodes=Followed({}), drain_conditions=frozenset())
    monkeypatch.setattr(program, "follow_machines", lambda *_: machines)
    for env, dry_run, acts, releases in [
        ({}, False, True, False),
        ({"RELEASE": "cordon"}, False, True, True),
        ({}, True, False, False),
    ]:
        in_pod = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "NAMESPACE": "ns", **env}
        built = build(in_pod, lambda _: None, dry_run=dry_run)
        assert built.machines is machines
        assert (built.teller is not None) is acts
        assert (built.releaser is not None) is built.policy.frees_broken is releases


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
        keep_looking(watcher(runner).round, 2.0, 10.0, log.append, clock)
    assert 5 < len(log) <= 8
    assert log[0] == "waiting for slurmctld: Unable to contact slurm controller"
    assert 45 < len(runner.commands) < 55


def test_one_round_by_hand_says_by_its_exit_code_whether_slurmctld_answered() -> None:
    for answer, code in [(NO_NODES, 0), (AWAY, 1)]:
        log: list[str] = []
        assert once(watcher(FakeRunner({"scontrol show nodes": answer})), log.append, FakeClock()) == code
        assert bool(log) is bool(code)


def test_a_wrong_setting_ends_the_program(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(program, "end_on_sigterm", lambda: None)
    monkeypatch.setattr("sys.argv", ["health-watch", "--once"])
    monkeypatch.setenv("MAX_DRAINED", "a lot")
    assert program.main() == 2
    assert "the settings cannot be used" in capsys.readouterr().out


@dataclass(frozen=True, kw_only=True)
class FakeKube(Kube):
    """Keeps what is written."""

    written: list[tuple[str, str, str, Any]] = field(default_factory=list)
    refuses: str = ""

    def send(self, method: str, path: str, body: Mapping[str, Any], content_type: str = "application/json") -> None:
        self.written.append((method, path, content_type, body))
        if self.refuses:
            raise KubeError(self.refuses)


@pytest.fixture
def kube() -> FakeKube:
    return FakeKube(host="127.0.0.1", port=9, namespace="ns", tls=False)


class Setting:
    """A teller on one machine with one worker."""

    def __init__(self, kube: FakeKube) -> None:
        nodes = Followed({"m-0": Machine(ready="True", conditions={})})
        pods = Followed({"w-0": Place(node="m-0", uid="u0")})
        machines = Machines(pods=pods, nodes=nodes)
        machines.findings([Record(name="w-0", states=frozenset({"IDLE"}))], NOW)
        self.log: list[str] = []
        self.teller = Teller(kube=kube, machines=machines, log=self.log.append)


def test_what_was_done_is_an_event_about_the_pod(kube: FakeKube) -> None:
    setting = Setting(kube)
    setting.teller.acted(Action(kind=Kind.DRAIN, node=view("w-0"), reason="health/disks [node]: full"), NOW)
    for kind in set(Kind) - {Kind.DRAIN}:
        setting.teller.acted(Action(kind=kind, node=view("w-7"), reason="r" * 2000), NOW)
    setting.teller.write_waiting()
    (method, path, content_type, body) = kube.written[0]
    assert (method, path, content_type) == ("POST", "/api/v1/namespaces/ns/events", "application/json")
    assert (body["reason"], body["type"]) == ("SlurmNodeDrained", "Warning")
    assert body["message"] == "drain w-0 (machine m-0): health/disks [node]: full"
    pod = {"apiVersion": "v1", "kind": "Pod", "name": "w-0", "namespace": "ns", "uid": "u0"}
    assert body["involvedObject"] == pod
    assert len({body["reason"] for *_, body in kube.written}) == len(Kind)
    assert all(len(body["message"]) <= 1024 for *_, body in kube.written)


def test_what_may_not_be_written_is_logged_once() -> None:
    setting = Setting(FakeKube(host="127.0.0.1", port=9, namespace="ns", tls=False, refuses="403 events is forbidden"))
    for _ in range(3):
        setting.teller.acted(Action(kind=Kind.DRAIN, node=view("w-0"), reason="r"), NOW)
        setting.teller.write_waiting()
    assert setting.log == ["Kubernetes was not told: 403 events is forbidden"]


def test_a_stuck_api_server_holds_up_nobody_and_fills_no_memory(kube: FakeKube) -> None:
    setting = Setting(kube)
    for _ in range(MOST_WAITING + 2):
        setting.teller.acted(Action(kind=Kind.DRAIN, node=view("w-0"), reason="r"), NOW)
    assert setting.log == ["Kubernetes is too slow: a message for it is left out"] * 2
