"""What has left the stack: node records that are gone for good, and partitions until their last job has gone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from images.common.command import Result
from images.common.kubernetes import Kube, KubeError, Object
from images.common.slurm_conf import leaving_partitions
from images.common.slurm_records import nodes_in
from images.controller.config_agent import POLL_SECONDS, LeavingKeeper, Reaper, may_be_gone, removable
from images.controller.configuration import Files
from images.controller.slurmctld import Slurmctld
from tests.fakes.commands import FakeClock, FakeRunner
from tests.unit.images.agents import World
from tests.unit.images.leaving_files import BOTH, ONE

GONE = ["DOWN", "DYNAMIC_NORM", "NOT_RESPONDING"]


def nodes(**states: list[str]) -> str:
    return "\n".join(
        f"NodeName={name.replace('_', '-')} Arch=x86_64 State={'+'.join(state)} Weight=1"
        for name, state in states.items()
    )


def pool(name: str, replicas: int) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"replicas": replicas}}


def names(text: str, pods: Sequence[str] = (), elastic: Sequence[str] = ()) -> list[str]:
    """Records that are removed where there is a pool `default` of three."""
    candidates = [node for node in nodes_in(text) if may_be_gone(node, elastic)]
    return removable(candidates, [{"metadata": {"name": name}} for name in pods], [pool("default", 3)])


CLOUD = ("CLOUD", "DYNAMIC_NORM")


def test_only_what_is_gone_for_good_is_removed() -> None:
    for node, pods, is_removed in [
        ({"default_3": GONE}, [], True),  # beyond the pool's size
        ({"default_2": GONE}, [], False),
        ({"gpu_0": GONE}, [], True),  # of a removed pool
        ({"default_3": GONE}, ["default-3"], False),  # its pod still drains
        ({"default_3": [*GONE, "POWERED_DOWN"]}, [], False),
        ({"default_3": [*GONE, "COMPLETING"]}, [], False),
        ({"default_3": ["IDLE", "DYNAMIC_NORM", "DRAIN"]}, [], False),  # it answers
        ({"default_3": ["DOWN", "NOT_RESPONDING"]}, [], False),  # it is written in slurm.conf
        ({"laptop": GONE}, [], False),  # no pod has such a name
        # When an elastic pool goes, slurmctld takes its nodes for nodes that are up, and would give them jobs.
        ({"default_0": ["IDLE+POWERED_DOWN", *CLOUD]}, [], True),
        ({"default_0": ["IDLE+POWERED_DOWN", *CLOUD]}, ["default-0"], False),
        ({"default_0": ["IDLE+COMPLETING", *CLOUD]}, [], False),
    ]:
        removed = [name.replace("_", "-") for name in node] if is_removed else []
        assert names(nodes(**node), pods) == removed, node
    assert names(nodes(gpu_0=["IDLE", *CLOUD]), elastic=["gpu"]) == []


class Api:
    def __init__(self, *, broken: bool = False) -> None:
        self.broken = broken

    def list_pods(self) -> list[Object]:
        if self.broken:
            raise KubeError("no answer")
        return []

    def list_stateful_sets(self) -> list[Object]:
        return [pool("default", 1)]


def reaped(text: str, api: Api) -> tuple[list[str], str]:
    """The records that a round removes of these, and what it says first."""
    log: list[str] = []
    none = Result(code=0, stdout='{"jobs": []}')
    runner = FakeRunner({"scontrol show nodes": Result(code=0, stdout=text), "squeue --all --states=completing": none})
    Reaper(api=cast("Kube", api), slurmctld=Slurmctld(runner=runner, clock=FakeClock()), log=log.append).round()
    deleted = [command for command in runner.commands if command.startswith("scontrol delete")]
    return [command.partition("nodename=")[2] for command in deleted], log[0]


def test_a_dead_record_is_removed_and_told_but_not_where_the_api_does_not_answer() -> None:
    text = nodes(default_3=GONE, default_0=["IDLE", "DYNAMIC_NORM"])
    deleted, said = reaped(text, Api(broken=True))
    assert (deleted, "left alone" in said) == ([], True)
    deleted, said = reaped(text, Api())
    assert (deleted, "default-3" in said) == (["default-3"], True)


# ---------------------------------------------------------------- partitions


class Controller(World):
    """With what looks at its queue."""

    def restart_agent(self) -> None:
        super().restart_agent()
        self.keeper = LeavingKeeper(
            slurmctld=self.slurmctld, published=self.agent.published, drop=self.agent.drop, log=self.log.append
        )

    @property
    def files(self) -> Files:
        return self.agent.published()

    def later(self) -> None:
        self.clock.sleep(POLL_SECONDS)
        self.keeper.round()


@pytest.fixture
def controller(tmp_path: Path) -> Controller:
    made = Controller(tmp_path)
    made.start(BOTH)
    return made


def test_a_job_that_ran_when_a_partition_left_may_have_named_it_and_keeps_it(controller: Controller) -> None:
    """Tasks of an array that start later have numbers of their own, and are told by the array's."""
    controller.slurmctld.queue = "7 R main\n8 PD main,gpu\n9 PD main\n"
    controller.agent.take(ONE)
    controller.later()
    for queue in ("7 R main\n8 R main\n8 PD main,gpu\n", "7 CG main\n8 R gpu\n", "8 R main\n"):
        controller.slurmctld.queue = queue
        controller.later()
        assert leaving_partitions(controller.files) == ("gpu",), queue

    controller.slurmctld.queue = "9 R main\n10 R main\n"
    controller.later()

    assert controller.files == ONE


def test_a_slurmctld_that_does_not_answer_keeps_its_partitions(controller: Controller) -> None:
    controller.agent.take(ONE)
    controller.slurmctld.queue = None

    controller.later()

    assert leaving_partitions(controller.files) == ("gpu",)
