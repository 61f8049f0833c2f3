"""One interval: what the checks found is told once, to everybody, and nothing else is done; and what is remembered."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from images.common.health.contract import Check, Node, Result, Status, fail, ok
from images.common.health.report import Finding, Report, decode
from images.health import state
from images.health.local import Local
from images.health.periodic import REFRESH_SECONDS, SETTLE_SECONDS, WELL_REFRESH_SECONDS, Periodic, metrics
from tests.fakes.slurmctld import FakeNode as Record
from tests.fakes.slurmctld import FakeSlurmctld
from tests.unit.images.health.places import add_process, run_at_once


def test_each_check_has_a_status_a_time_and_its_figures() -> None:
    values = {'disk_used_ratio{path="/jail"}': 0.5}
    text = metrics({"disks": Result(status=Status.WARN, values=values, seconds=0.25)}, at=1795298103.7)
    assert set(text.splitlines()) > {
        "# TYPE slurmstack_health_check_seconds gauge",
        'slurmstack_health_check_seconds{check="disks"} 0.25',
        'slurmstack_health_check_status{check="disks",status="ok"} 0',
        'slurmstack_health_check_status{check="disks",status="warn"} 1',
        'slurmstack_health_disk_used_ratio{path="/jail"} 0.5',
        "slurmstack_health_last_run_timestamp_seconds 1795298103",
    }


FULL = fail("node", "/ 97 % used")


class FakeNode:
    """A node with checks whose results a test sets, and its record in Slurm."""

    def __init__(self, directory: Path) -> None:
        (directory / "proc").mkdir()
        self.node = Node(name="w-0", root=directory, state=directory / "state")
        self.local = Local(node=self.node)
        self.checks: dict[str, Check] = {}
        self.results: dict[str, Result] = {}
        self.log: list[str] = []
        self.time = 1795298103.0
        self.slurmctld = FakeSlurmctld(nodes={name: Record(states={"IDLE"}) for name in ("w-0", "w-1")})

    def add(self, name: str, result: Result, **how: Any) -> None:
        self.results[name] = result
        run: Callable[..., Result] = lambda *_: self.results[name]  # noqa: E731
        self.checks[name] = Check(name=name, run=run, seconds=20, **how)

    def job(self, *, runs: bool) -> None:
        """Whether a job runs here from now on."""
        if runs:
            add_process(self.node.root / "proc", 11, comm="slurmstepd", title="slurmstepd: [18.0]", uid=0)
        else:
            shutil.rmtree(self.node.root / "proc/11")

    def run(self, *, after: float = 30) -> int:
        """One interval. Returns how often it wrote to Slurm."""
        before, runner = len(self.slurmctld.changes()), self.slurmctld.runner
        Periodic(local=self.local, checks=self.checks, log=self.log.append, runner=runner, now=lambda: self.time).run()
        self.time += after
        return len(self.slurmctld.changes()) - before

    @property
    def report(self) -> Report:
        report = decode(self.slurmctld.nodes[self.node.name].comment)
        assert report is not None
        return report


LONGEST = 1.1 * WELL_REFRESH_SECONDS
STEP = 90


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNode:
    run_at_once(monkeypatch, "periodic")
    return FakeNode(tmp_path)


def test_nothing_new_is_written_only_every_five_minutes(fake: FakeNode) -> None:
    fake.add("disks", FULL)
    writes = [fake.run() for _ in range(24)]
    assert writes == [1, 1, 1, *[0] * 9, 1, *[0] * 9, 1, 0]
    assert fake.report.at == 1795298103 + SETTLE_SECONDS + 2 * REFRESH_SECONDS


def test_nodes_that_are_well_say_so_rarely_and_not_all_at_the_same_time(fake: FakeNode, tmp_path: Path) -> None:
    fake.add("disks", ok())
    pauses = []
    for name in ("w-0", "w-1"):
        fake.node = replace(fake.node, name=name, state=tmp_path / name)
        fake.local = replace(fake.local, node=fake.node)
        fake.run(after=SETTLE_SECONDS + 1)
        sent = fake.report.at
        while fake.run(after=STEP) == 0 or fake.report.at - sent <= SETTLE_SECONDS + 1:
            pass
        pauses.append(fake.report.at - sent)
    assert pauses[0] != pauses[1]
    assert all(0.9 * WELL_REFRESH_SECONDS <= pause <= LONGEST + STEP for pause in pauses)
    now = fake.report.at + LONGEST * 2 + 30
    assert Finding(result=ok(), at=fake.report.at).is_fresh(now), "one lost report is not yet silence"


def test_a_change_is_written_in_the_same_interval_and_a_moving_figure_is_not(fake: FakeNode) -> None:
    fake.add("disks", ok())
    fake.run()
    fake.results["disks"] = FULL
    assert fake.run() == 1
    assert fake.run(after=SETTLE_SECONDS) == 1
    fake.results["disks"] = fail("node", "/ 98 % used")
    assert fake.run() == 0
    fake.results["disks"] = ok()
    assert fake.run() == 1
    assert fake.report.results == {"disks": ok()}
    assert fake.log == ["fail disks [node]: / 97 % used", "ok disks: it was fail"]
    fake.time -= 86400
    assert fake.run() == 1, "a clock that was set back does not silence the node"


def test_without_slurmctld_the_report_is_written_as_soon_as_it_is_back_and_that_is_told_once(fake: FakeNode) -> None:
    fake.add("disks", FULL)
    fake.slurmctld.away = True
    assert [fake.run(), fake.run()] == [0, 0]
    fake.slurmctld.away = False
    assert fake.run() == 1
    assert sum("cannot write the report" in line for line in fake.log) == 1


def test_a_check_that_is_off_does_not_run_and_figures_are_in_the_metrics_file(
    fake: FakeNode,
) -> None:
    fake.local = Local(node=fake.node, off=frozenset({"dns"}))
    fake.add("dns", FULL)
    fake.add("dcgm", FULL, hardware="gpu")
    fake.add("disks", Result(status=Status.OK, values={'disk_used_ratio{path="/"}': 0.25}))
    fake.run()
    assert set(fake.report.results) == {"disks"}
    assert 'slurmstack_health_disk_used_ratio{path="/"} 0.25' in (fake.node.state / state.METRICS).read_text()


def test_what_looks_between_jobs_says_what_was_found_last_until_it_can_look_again(fake: FakeNode) -> None:
    fake.add("disks", ok())
    fake.add("gpu-free", ok(), between_jobs=True)
    fake.run(after=SETTLE_SECONDS + 1)
    fake.job(runs=True)
    fake.results["gpu-free"] = fail("user", "GPU 0 is in use")
    assert [fake.run(), fake.run()] == [0, 0], "the job's own use is no fault, and a job is no news"
    prolog = {"found": {"gpu-free": vars(fake.results["gpu-free"])}, "at": 1.5}
    state.remember(fake.node, state.PROLOG, prolog)
    assert (fake.run(), fake.report.results["gpu-free"].message) == (1, "GPU 0 is in use")
    sent = fake.report.at
    fake.run(after=REFRESH_SECONDS)
    fake.run()
    assert fake.report.at - sent >= REFRESH_SECONDS, "it is told anew before it is old"
    fake.job(runs=False)
    fake.results["gpu-free"] = ok()
    fake.run(after=SETTLE_SECONDS + 1)
    fake.job(runs=True)
    assert (fake.run(), fake.report.results["gpu-free"]) == (0, ok())
    fake.job(runs=False)
    state.remember(fake.node, state.PROLOG, {**prolog, "at": 2.5})
    assert fake.run() == 1, "the report that the prolog wrote says something else"
    fake.local = replace(fake.local, off=frozenset({"gpu-free"}))
    assert (fake.run(), set(fake.report.results)) == (1, {"disks"}), "a check that is turned off is not in it"
