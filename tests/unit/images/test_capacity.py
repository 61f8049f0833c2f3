"""Limits that are too small for what slurmctld holds never reach it."""

from __future__ import annotations

from images.common.command import Result
from images.controller.capacity import too_small
from images.controller.control import Slurmctld
from tests.fakes.commands import FakeRunner


def obstacle(new: str, old: str, *, jobs: int = 0, nodes: int = 0) -> tuple[str | None, list[str]]:
    """What is said about a change of slurm.conf, and the commands that were run for it."""
    runner = FakeRunner(
        {"squeue": Result(code=0, stdout="1\n" * jobs), "scontrol show nodes": Result(code=0, stdout="n\n" * nodes)}
    )
    return too_small(Slurmctld(runner=runner), {"slurm.conf": new}, {"slurm.conf": old}), runner.commands


def test_fewer_jobs_than_there_are_is_refused() -> None:
    for new, old in (("MaxJobCount=3\n", "MaxJobCount=5\n"), ("maxjobcount=3\n", "")):
        said, commands = obstacle(new, old, jobs=4)
        assert "MaxJobCount=3 is too small: slurmctld has 4 job records" in str(said)
        assert "--states=all" in commands[0]


def test_fewer_nodes_than_there_are_is_refused_with_what_to_set() -> None:
    said, _ = obstacle("MaxNodeCount=1024\n", "MaxNodeCount=4096\n", nodes=1500)

    assert said is not None
    assert "slurmctld has 1500 nodes" in said
    assert "Set slurm.settings.MaxNodeCount to what it was" in said


def test_slurmctld_is_not_asked_where_no_limit_becomes_smaller() -> None:
    both = "MaxJobCount=5\nMaxNodeCount=4\n"
    for new, old in ((both, both), ("", "MaxJobCount=9\n")):
        assert obstacle(new, old, jobs=100000, nodes=100000) == (None, [])


def test_a_smaller_limit_is_refused_while_slurmctld_does_not_say_what_it_holds() -> None:
    silent = Slurmctld(runner=FakeRunner({"squeue": Result(code=1)}))

    assert too_small(silent, {"slurm.conf": "MaxJobCount=5000\n"}, {"slurm.conf": ""}) is not None
