"""The whole program against a small Slurm: what users, administrators and the watcher see."""

from __future__ import annotations

import json
import os
import pwd
import sys
from typing import Any

import pytest

from images.common.command import Result as Done
from images.health.contract import Status
from images.health.node_tests import program
from images.health.node_tests.program import NodeTester
from images.health.node_tests.results import Record, decode
from images.health.node_tests.settings import parse
from images.health.node_tests.slurm import TestSlurm
from tests.fakes.node_tests_cluster import FakeCluster
from tests.unit.images.health.node_tests.told import told


def busbw(value: float) -> str:
    return told(f"Out of bounds values : 0 OK\nAvg bus bandwidth : {value}")


class Site:
    """A cluster with the program in it."""

    def __init__(self, cluster: FakeCluster, **settings: Any) -> None:
        self.cluster = cluster
        self.settings = parse({"max_under_test": "100%", **settings})
        self.log: list[str] = []
        self.start()

    def start(self, *, dry_run: bool = False) -> None:
        """Start the program, again."""
        slurm = TestSlurm(runner=self.cluster, settings=self.settings)
        wall = self.cluster.wall
        self.tester = NodeTester(slurm=slurm, log=self.log.append, dry_run=dry_run, wall=wall)

    def round(self, seconds: int = 3) -> bool:
        """One round, after a while."""
        self.cluster.now += seconds
        return self.tester.round()

    def measure(self, rounds: int = 1, *, after: int = 3) -> None:
        """Start tests, let them end, and see what they say, so many times."""
        for _ in range(rounds):
            self.round(after)
            self.cluster.now += 60
            self.cluster.end()
            self.round()

    def record(self, name: str, test: str) -> Record:
        return decode(self.cluster.extras[name])[test]


def cluster(count: int = 2, **fields: Any) -> FakeCluster:
    return FakeCluster(count, **fields)


def test_a_test_is_ended_as_soon_as_a_job_waits_and_runs_again_when_none_does() -> None:
    site = Site(cluster(measure=lambda _job: busbw(1.0)), tests=["nccl-node"])
    site.round()
    site.cluster.users_wait = [("main", "Resources")]
    assert len(site.cluster.running()) == 2
    site.round()
    assert site.cluster.running() == []
    assert site.round() is False
    assert (site.cluster.extras, len(site.cluster.jobs)) == ({}, 2)
    site.cluster.users_wait = [("main", "Dependency")]
    assert site.round() is True
    assert len(site.cluster.running()) == 2


def test_a_restart_takes_up_what_runs_and_what_has_ended() -> None:
    site = Site(cluster(measure=lambda _job: busbw(476.0)), tests=["nccl-node"])
    site.round()
    site.start()
    site.round()
    assert len(site.cluster.jobs) == 2, "nothing is started twice"
    site.cluster.end()
    site.start()
    site.round(299)
    assert site.record("w-0", "nccl-node").result.status is Status.OK
    site.start()
    site.round()
    assert len(site.cluster.jobs) == 2
    site.round(86_400)
    site.cluster.end()
    site.round(301)
    assert len(site.cluster.jobs) == 6, "what nobody has read in time is due as before"


def test_a_job_that_ended_without_a_word_is_not_checked() -> None:
    site = Site(cluster(1), tests=["cpu-speed"])
    site.round()
    site.cluster.end("TIMEOUT")
    site.round()
    result = site.record("w-0", "cpu-speed").result
    assert (result.status, "TIMEOUT" in result.message) == (Status.NOT_CHECKED, True)


def test_the_bad_node_of_a_pair_is_found_and_no_other_is_accused() -> None:
    bad = "w-1"
    slow = cluster(6, measure=lambda job: busbw(40.0 if bad in job.nodes else 350.0))
    site = Site(slow, tests=["nccl-pair"], infiniband=["pool"])
    for _ in range(6):
        site.measure()
        for name in slow.nodes:
            if site.record(name, "nccl-pair").result.status is Status.FAIL:
                slow.drain(name, "slow")
    assert slow.drained == {bad}
    result = site.record(bad, "nccl-pair").result
    assert result.fault == "hardware"
    assert "busbw 40 GB/s (at least 300 expected)" in result.message
    assert "which are well with others" in result.message
    assert {site.record(name, "nccl-pair").result.status for name in slow.nodes if name != bad} == {Status.OK}
    assert len(slow.jobs) <= 8
    site.round()
    assert slow.running() == [], "the search has ended"


def test_no_more_nodes_than_the_limit_are_under_test() -> None:
    busy = cluster(20, measure=lambda _job: told("events per second: 9"))
    site = Site(busy, tests=["cpu-speed", "memory-bandwidth"], max_under_test="10%")
    site.measure(30)
    assert busy.most_at_once == 2
    assert all(set(decode(extra)) == {"cpu-speed", "memory-bandwidth"} for extra in busy.extras.values())
    assert len(busy.extras) == 20


def test_a_result_that_could_not_be_written_is_written_later() -> None:
    site = Site(cluster(1, measure=lambda _job: busbw(476.0)), tests=["nccl-node"])
    site.cluster.nodes["w-0"].extra = '{"rack": 7}'
    site.round()
    site.cluster.end()
    site.cluster.denied = frozenset({"scontrol update"})
    site.round()
    site.round()
    assert site.cluster.extras == {"w-0": '{"rack": 7}'}
    assert [line for line in site.log if "cannot" in line] == ["cannot write the results of w-0: Access denied"]
    site.cluster.denied = frozenset()
    site.round()
    assert site.record("w-0", "nccl-node").result.status is Status.OK
    assert json.loads(site.cluster.extras["w-0"])["rack"] == 7, "what others keep in the field stays"


def test_a_dry_run_reads_results_and_changes_nothing() -> None:
    site = Site(cluster(1, measure=lambda _job: busbw(476.0)), tests=["nccl-node"])
    site.start(dry_run=True)
    site.round()
    site.round()
    assert (site.cluster.jobs, site.log) == ([], ["would start nccl-node on w-0"])
    site.start()
    site.round()
    site.cluster.end()
    site.start(dry_run=True)
    site.round()
    assert site.cluster.extras == {}
    assert site.log[-1] == "w-0: ok nccl-node: busbw 476 GB/s"


def main(monkeypatch: pytest.MonkeyPatch, runner: Any, *arguments: str, uid: int = 64030) -> tuple[int, list[str]]:
    dropped: list[str] = []
    monkeypatch.setattr(program, "Shared", lambda: runner)
    monkeypatch.setattr(program, "end_on_sigterm", lambda: None)
    monkeypatch.setattr(os, "getuid", lambda: uid)
    monkeypatch.setattr(pwd, "getpwnam", lambda name: name)
    monkeypatch.setattr(program, "drop_privileges", dropped.append)
    monkeypatch.setattr(sys, "argv", ["health-tests", *arguments])
    return program.main(), dropped


def test_the_program_never_goes_on_as_root(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    small = cluster(1)
    assert main(monkeypatch, small, "--once", "--dry-run", uid=0) == (0, ["slurm"])
    assert main(monkeypatch, small, "--once", "--dry-run") == (0, [])
    assert "health-tests: would start cpu-speed on w-0" in capsys.readouterr().out


def test_the_exit_code_tells_what_went_wrong(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(monkeypatch, lambda *_a, **_k: Done(code=1, stderr="down"), "--once")[0] == 1
    path = tmp_path / "settings.json"
    path.write_text('{"max_under_test": "many"}')
    monkeypatch.setenv("SETTINGS", str(path))
    assert main(monkeypatch, cluster(1), "--once")[0] == 2
    assert "settings.json cannot be used" in capsys.readouterr().out
