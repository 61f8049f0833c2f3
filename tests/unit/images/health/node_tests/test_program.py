"""Idle nodes are measured, users do not wait, a node that is slow twice is drained by the watcher."""

from __future__ import annotations

import json
import os
import pwd
import sys
from typing import Any

import pytest

from images.common.command import Result as Done
from images.common.health.contract import Status
from images.health.node_tests import program
from images.health.node_tests.results import decode
from tests.fakes.node_tests_cluster import FakeCluster, Job
from tests.unit.images.health.node_tests.site import Site

DAY = 86_400


def test_an_idle_node_is_measured_once_a_day_and_the_figure_is_in_its_record() -> None:
    site = Site(2)
    site.rounds(4)
    assert site.ran() == ["cpu-speed"] * 2
    record = site.record("w-1")
    assert record is not None
    assert (record.result.status, record.result.message) == (Status.OK, "events 5000 events/s")
    site.round(DAY)
    assert len(site.ran()) == 4
    seldom = Site(1, intervals={"cpu-speed": 9 * DAY})
    seldom.rounds(3)
    seldom.round(2 * DAY)
    assert len(seldom.ran()) == 1


def test_a_node_that_is_slow_twice_is_drained_with_the_figure_and_stays_so() -> None:
    site = Site(3, slow=lambda job: job.nodes == ["w-0"])
    site.rounds(3)
    assert site.statuses() == {"cpu-speed": "warn"}
    assert site.cluster.drained == set(), "measured once"
    site.rounds(5, 60)
    assert site.reason == "health/cpu-speed [hardware]: events 90.5 events/s (at least 1000 expected)"
    site.slow = lambda _job: False
    site.rounds(100, 600)
    assert site.cluster.drained == {"w-0"}


def test_one_that_is_slow_once_is_left_alone() -> None:
    site = Site(1, slow=lambda job: job.number == 1)
    site.rounds(40, 20)
    assert (site.statuses(), site.ran(), all(site.was_open)) == ({"cpu-speed": "ok"}, ["cpu-speed"] * 2, True)


def test_a_node_that_an_administrator_has_given_back_is_measured_again() -> None:
    site = Site(1, slow=lambda _job: True)
    site.rounds(10, 60)
    site.slow = lambda _job: False
    site.cluster.now += 900
    site.cluster.nodes["w-0"].states.discard("DRAIN")
    site.rounds(2)
    assert site.statuses() == {"cpu-speed": "ok"}


def test_the_slow_node_of_a_pair_is_drained_and_no_other() -> None:
    for bad in range(5):
        site = Site(5, "nccl-pair", slow=lambda job, bad=bad: f"w-{bad}" in job.nodes)  # type: ignore[misc]
        site.rounds(100, 30)
        assert site.cluster.drained == {f"w-{bad}"}
        reason = site.cluster.nodes[f"w-{bad}"].reason
        assert reason.startswith("health/nccl-pair [hardware]: with w-")
        assert "busbw 40 GB/s (at least 300 expected)" in reason
        assert {site.statuses(name)["nccl-pair"] for name in site.cluster.nodes if name != f"w-{bad}"} == {"ok"}


def test_where_no_node_is_known_to_be_well_none_is_drained_for_a_slow_pair() -> None:
    for count in (2, 4):
        site = Site(count, "nccl-pair", slow=lambda _job: True)
        site.rounds(50, 60)
        assert site.cluster.drained == set()
        assert {site.statuses(name)["nccl-pair"] for name in site.cluster.nodes} == {"warn"}


@pytest.mark.parametrize("why", ["Resources", "Priority", "None"])
def test_a_test_is_ended_as_soon_as_a_job_waits_and_counts_as_not_having_been(why: str) -> None:
    site = Site(2)
    site.look()
    assert len(site.cluster.running()) == 2
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


def test_no_more_nodes_than_the_limit_are_under_test() -> None:
    site = Site(20, "cpu-speed", "memory-bandwidth", max_under_test="10%")
    site.rounds(60)
    assert site.cluster.most_at_once == 2
    assert all(len(decode(extra)) == 2 for extra in site.cluster.extras.values())
    assert len(site.cluster.extras) == 20
    pair = Site(8, "nccl-pair", max_under_test="1")
    pair.rounds(10)
    assert (pair.cluster.most_at_once, len(pair.cluster.extras)) == (2, 8), "else a pair never could"
    none = Site(1, max_under_test="0")
    none.rounds(3)
    assert none.ran() == []


@pytest.mark.parametrize(
    "states", [{"MIXED"}, {"IDLE", "PLANNED"}, {"IDLE", "RESERVED"}, {"IDLE", "POWERED_DOWN"}, {"IDLE", "DRAIN"}]
)
def test_other_nodes_are_left_alone(states: set[str]) -> None:
    site = Site()
    site.cluster.nodes["w-0"].states = states
    site.cluster.nodes["w-0"].reason = "fan is replaced" if "DRAIN" in states else ""
    site.rounds(3)
    assert site.ran() == []


def test_what_a_node_has_no_gpus_for_does_not_run_there() -> None:
    site = Site(1, "nccl-node", "dcgm-r1", "nccl-pair")
    site.cluster.gpus = 0
    site.rounds(3)
    assert site.ran() == []


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
    site.round(DAY)
    site.round(301)
    assert len(site.cluster.jobs) == 3, "what nobody has read in time is due as before"


def test_a_job_that_ended_without_a_word_is_not_checked_and_one_that_was_stopped_has_not_been() -> None:
    for state, statuses in (("TIMEOUT", {"cpu-speed": "not checked"}), ("CANCELLED", {}), ("PREEMPTED", {})):
        site = Site()
        site.cluster.measure = lambda _job: ""
        site.look()
        site.cluster.end(state)
        site.look()
        assert site.statuses() == statuses


def test_what_was_measured_on_another_machine_counts_for_nothing() -> None:
    site = Site(slow=lambda _job: True)
    site.look()
    site.cluster.end()
    site.cluster.nodes["w-0"].started_at = site.cluster.now + 1
    site.cluster.now += 2
    site.round()
    assert site.statuses() == {}
    site.look()
    assert site.statuses() == {"cpu-speed": "warn"}


def test_a_result_that_could_not_be_written_is_written_later_and_what_others_keep_there_stays() -> None:
    site = Site()
    site.cluster.nodes["w-0"].extra = '{"rack": 7}'
    site.round()
    site.cluster.denied = frozenset({"scontrol update"})
    site.look()
    site.look()
    assert site.cluster.extras == {"w-0": '{"rack": 7}'}
    refused = [line for line in site.log if "cannot" in line]
    assert refused == ["cannot w-0: ok cpu-speed: events 5000 events/s: Access denied"]
    site.cluster.denied = frozenset()
    site.look()
    assert (site.statuses(), json.loads(site.cluster.extras["w-0"])["rack"]) == ({"cpu-speed": "ok"}, 7)


def run_main(monkeypatch: pytest.MonkeyPatch, runner: Any, *arguments: str, uid: int = 64030) -> tuple[int, list[str]]:
    dropped: list[str] = []
    monkeypatch.setattr(program, "run", runner)
    monkeypatch.setattr(program, "end_on_sigterm", lambda: None)
    monkeypatch.setattr(program, "keep_looking", lambda look, *_: look())
    monkeypatch.setattr(os, "getuid", lambda: uid)
    monkeypatch.setattr(pwd, "getpwnam", lambda name: name)
    monkeypatch.setattr(program, "drop_privileges", dropped.append)
    monkeypatch.setattr(sys, "argv", ["health-tests", *arguments])
    return program.main(), dropped


def test_the_program_never_goes_on_as_root(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = FakeCluster()
    assert run_main(monkeypatch, cluster, uid=0) == (0, ["slurm"])
    assert "health-tests: start cpu-speed on w-0" in capsys.readouterr().out
    assert run_main(monkeypatch, cluster) == (0, [])
    assert len(cluster.jobs) == 1


def test_the_exit_code_tells_what_went_wrong(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    down = lambda *_a, **_k: Done(code=1, stderr="down")  # noqa: E731
    assert run_main(monkeypatch, down, "--node", "w-0")[0] == 2
    assert "slurmctld: down" in capsys.readouterr().out
    path = tmp_path / "settings.json"
    path.write_text('{"max_under_test": "many"}')
    monkeypatch.setenv("SETTINGS", str(path))
    assert run_main(monkeypatch, FakeCluster())[0] == 2
    assert "settings.json cannot be used" in capsys.readouterr().out


def test_a_job_of_another_name_is_none_of_ours() -> None:
    site = Site()
    for name in ("train", "health-cpu-speed", "my-health-cpu-speed:w-0", "health-cpu-speed:w-0,w-9", "health-x:w-0"):
        job = Job(number=7, name=name, nodes=[], began=site.cluster.now, spec={}, state="COMPLETED")
        site.cluster.jobs = [job]
        job.ended = site.cluster.now
        site.tester.round()
    assert site.cluster.extras == {}
