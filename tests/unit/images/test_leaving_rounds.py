"""Partitions that left the stack, until their last job has gone."""

from __future__ import annotations

from pathlib import Path

import pytest

from images.common.slurm_conf import leaving_partitions
from images.controller.configuration import Files, config_hash
from images.controller.leaving_rounds import POLL_SECONDS, LeavingKeeper
from tests.fakes.commands import FakeClock
from tests.unit.images.agents import World
from tests.unit.images.leaving_files import BOTH, GPU, ONE


class Controller(World):
    """With what looks at its queue."""

    def restart_agent(self) -> None:
        super().restart_agent()
        self.looks = FakeClock()
        self.keeper = LeavingKeeper(
            slurmctld=self.slurmctld, published=self.agent.published, drop=self.agent.drop, log=self.log.append,
            clock=self.looks,
        )  # fmt: skip

    @property
    def files(self) -> Files:
        return self.agent.published()

    def later(self) -> None:
        self.looks.sleep(POLL_SECONDS)
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


def test_the_queue_is_asked_only_while_a_partition_leaves_and_not_all_the_time(controller: Controller) -> None:
    controller.later()
    assert controller.slurmctld.asked == 0

    controller.slurmctld.queue = "7 R gpu\n"
    controller.agent.take(ONE)
    controller.keeper.round()
    controller.keeper.round()
    assert controller.slurmctld.asked == 1


def test_a_slurmctld_that_does_not_answer_keeps_its_partitions(controller: Controller) -> None:
    controller.agent.take(ONE)
    controller.slurmctld.queue = None

    controller.later()

    assert leaving_partitions(controller.files) == ("gpu",)


def test_a_partition_that_leaves_soon_after_another_is_looked_at_at_once(controller: Controller) -> None:
    three = {"slurm.conf": BOTH["slurm.conf"] + "PartitionName=old Nodes=a State=UP\n"}
    controller.slurmctld.queue = "7 PD gpu\n"
    controller.agent.take(three)
    controller.agent.take({"slurm.conf": three["slurm.conf"].replace(GPU, "")})
    controller.keeper.round()

    controller.agent.take(ONE)
    controller.keeper.round()

    assert leaving_partitions(controller.files) == ("gpu",)
    assert controller.log[-1] == "no job is left of old: taken out of slurm.conf"


def test_what_left_while_the_controller_was_down_is_kept_at_its_start(controller: Controller) -> None:
    controller.ready.unlink()
    controller.slurmctld.up = False
    controller.restart_agent()

    controller.agent.take(ONE)

    assert leaving_partitions(controller.files) == ("gpu",)


def test_a_partition_that_comes_back_while_it_is_kept_is_open_again(controller: Controller) -> None:
    controller.slurmctld.queue = "7 R gpu\n"
    controller.agent.take(ONE)
    controller.keeper.round()

    controller.agent.take(BOTH)

    assert controller.files == BOTH
    assert controller.board.get().active == config_hash(BOTH)
