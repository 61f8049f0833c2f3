"""slurmctld of the pod: what it is asked and how often, limits that are too small for it, and how it is started."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from images.common.command import Result
from images.controller.slurmctld import FRESH_SECONDS, LONGEST_SECONDS, SHARE, ClusterId, Slurmctld, command
from tests.fakes.commands import FakeClock, FakeRunner

NODES = "scontrol show nodes"


def obstacle(new: str, old: str, *, jobs: int = 0, nodes: int = 0) -> tuple[str | None, list[str]]:
    """What is said about a change of slurm.conf, and the commands that were run for it."""
    runner = FakeRunner({"squeue": Result(code=0, stdout="1\n" * jobs), NODES: Result(code=0, stdout="n\n" * nodes)})
    return Slurmctld(runner=runner).too_small({"slurm.conf": new}, {"slurm.conf": old}), runner.commands


def test_fewer_jobs_than_there_are_is_refused() -> None:
    for new, old in (("MaxJobCount=3\n", "MaxJobCount=5\n"), ("maxjobcount=3\n", "")):
        said, commands = obstacle(new, old, jobs=4)
        assert "MaxJobCount=3 is too small: slurmctld has 4 job records" in str(said)
        assert "--states=all" in commands[0]


def test_fewer_nodes_than_there_are_is_refused_with_what_to_set() -> None:
    said, _ = obstacle("MaxNodeCount=1024\n", "MaxNodeCount=4096\n", nodes=1500)
    assert "slurmctld has 1500 nodes" in str(said)
    assert "Set slurm.settings.MaxNodeCount to what it was" in str(said)


def test_slurmctld_is_not_asked_where_no_limit_becomes_smaller() -> None:
    both = "MaxJobCount=5\nMaxNodeCount=4\n"
    for new, old in ((both, both), ("", "MaxJobCount=9\n")):
        assert obstacle(new, old, jobs=100000, nodes=100000) == (None, [])


def test_a_smaller_limit_is_refused_while_slurmctld_does_not_say_what_it_holds() -> None:
    silent = Slurmctld(runner=FakeRunner({"squeue": Result(code=1)}))
    assert silent.too_small({"slurm.conf": "MaxJobCount=5000\n"}, {"slurm.conf": ""}) is not None


def slow(seconds: float) -> tuple[Slurmctld, FakeRunner]:
    """A slurmctld whose list of nodes takes so long."""
    clock = FakeClock()

    def listed(_: Sequence[str]) -> Result:
        clock.sleep(seconds)
        return Result(code=0, stdout="NodeName=a-0 Arch=x86_64 State=IDLE Weight=1")

    runner = FakeRunner({NODES: listed})
    return Slurmctld(runner=runner, clock=clock), runner


@pytest.mark.parametrize(("takes", "serves"), [(0.0, FRESH_SECONDS), (0.5, 0.5 * SHARE), (30.0, LONGEST_SECONDS)])
def test_one_list_of_nodes_serves_all_who_look_and_longer_where_it_took_long(takes: float, serves: float) -> None:
    slurmctld, runner = slow(takes)
    for pause, asked in ((0.0, 1), (serves - 0.1, 1), (0.2, 2)):
        slurmctld.clock.sleep(pause)
        slurmctld.nodes()
        assert len(runner.commands) == asked


def test_after_a_change_or_where_it_matters_the_list_of_nodes_is_new() -> None:
    slurmctld, runner = slow(0.0)
    slurmctld.nodes()
    for change in (slurmctld.undrain, slurmctld.leave_to_elastic, slurmctld.delete_node):
        change("a-0")
        runner.commands.clear()
        slurmctld.nodes()
        assert runner.ran(NODES), change
    slurmctld.nodes(newest=True)
    assert len(runner.commands) == 2


def test_no_answer_is_asked_for_again_at_once() -> None:
    runner = FakeRunner({NODES: Result(code=1)})
    slurmctld = Slurmctld(runner=runner, clock=FakeClock())
    assert slurmctld.nodes() is None
    assert slurmctld.nodes() is None
    assert len(runner.commands) == 2


def test_a_cluster_that_turned_accounting_off_takes_the_id_again(tmp_path: Path) -> None:
    """tests/slurm/test_accounting.py has real daemons."""
    without, using = {"slurm.conf": ""}, {"slurm.conf": "AccountingStorageType=accounting_storage/slurmdbd\n"}
    cluster = ClusterId(state=tmp_path)
    cluster.prepare(using)
    cluster.prepare(without)
    (tmp_path / "clustername").write_text("x|3")
    cluster.prepare(using)
    assert not (tmp_path / "clustername").exists()


@pytest.mark.parametrize(
    ("files", "ignores"),
    [((), False), (("clustername",), True), (("clustername", "assoc_usage"), False)],
    ids=["first start", "killed in its first minutes", "later"],
)
def test_missing_state_is_ignored_only_where_none_was_ever_saved(
    tmp_path: Path, files: tuple[str, ...], ignores: bool
) -> None:
    for name in files:
        (tmp_path / name).touch()
    assert ("-i" in command(tmp_path)) == ignores
