"""slurmctld of the pod: what it is asked and how often, limits that are too small for it, and how it is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from images.common.command import Result
from images.controller.slurmctld import ClusterId, Slurmctld, command
from tests.fakes.commands import FakeRunner

NODES = "scontrol show nodes"


def obstacle(new: str, old: str, *, jobs: int = 0, nodes: int = 0) -> tuple[str | None, list[str]]:
    """What is said about a change of slurm.conf, and the commands that were run for it."""
    runner = FakeRunner({"squeue": Result(code=0, stdout="1\n" * jobs), NODES: Result(code=0, stdout="n\n" * nodes)})
    return Slurmctld(runner=runner).too_small({"slurm.conf": new}, {"slurm.conf": old}), runner.commands


def test_fewer_jobs_than_there_are_is_refused() -> None:
    for new, old in (("MaxJobCount=3\n", "MaxJobCount=5\n"), ("maxjobcount=3\n", "")):
        said, commands = obstacle(new, old, jobs=4)
        assert "MaxJobCount=3 is too small: slurmctld has 4 records" in str(said)
        assert "--states=all" in commands[0]


def test_fewer_nodes_than_there_are_is_refused() -> None:
    said, _ = obstacle("MaxNodeCount=1024\n", "MaxNodeCount=4096\n", nodes=1500)
    assert "MaxNodeCount=1024 is too small: slurmctld has 1500 records" in str(said)


def test_slurmctld_is_not_asked_where_no_limit_becomes_smaller() -> None:
    both = "MaxJobCount=5\nMaxNodeCount=4\n"
    for new, old in ((both, both), ("", "MaxJobCount=9\n")):
        assert obstacle(new, old, jobs=100000, nodes=100000) == (None, [])


def test_a_smaller_limit_is_refused_while_slurmctld_does_not_say_what_it_holds() -> None:
    silent = Slurmctld(runner=FakeRunner({"squeue": Result(code=1)}))
    assert silent.too_small({"slurm.conf": "MaxJobCount=5000\n"}, {"slurm.conf": ""}) is not None


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
