"""Which nodes the configuration agent gives another weight, and when."""

from __future__ import annotations

from images.common.command import Result
from images.controller.slurmctld import Slurmctld
from images.controller.weights import POLL_SECONDS, WEIGHTS_FILE, WeightKeeper
from tests.fakes.commands import FakeClock, FakeRunner

LOOK, UPDATE = "sinfo", "scontrol update"
NODES = "gpu-0 1\ngpu-1 5\ngpu-1 5\ngpu-2 20\ncpu-0 7\nbig-gpu-0 7\n"


class Cluster:
    """slurmctld with nodes, and a stack file's weights."""

    def __init__(self, weights: str) -> None:
        self.runner = FakeRunner({LOOK: Result(code=0, stdout=NODES), UPDATE: Result(code=0)})
        self.clock, self.said = FakeClock(), list[str]()
        slurmctld = Slurmctld(runner=self.runner, clock=self.clock)
        self.keeper = WeightKeeper(slurmctld=slurmctld, published=lambda: {WEIGHTS_FILE: weights}, log=self.said.append)

    def round(self, after: float = POLL_SECONDS) -> list[str]:
        """The changes that the keeper makes."""
        self.clock.time += after
        self.runner.commands.clear()
        self.keeper.round()
        return [command.removeprefix(f"{UPDATE} ") for command in self.runner.commands if command.startswith(UPDATE)]


def test_nodes_get_their_pool_s_weight_again_and_again_and_others_are_left_alone() -> None:
    cluster = Cluster("gpu 20\ncpu 0\nempty 3\n")
    changes = ["nodename=gpu-[0-1] weight=20", "nodename=cpu-0 weight=0"]
    assert [cluster.round(), cluster.round(POLL_SECONDS / 2), cluster.round()] == [changes, [], changes]


def test_what_is_refused_is_told_once_and_tried_again() -> None:
    cluster = Cluster("gpu 20\n")
    cluster.runner.answers[UPDATE] = Result(code=1, stderr="Invalid node name specified")
    assert cluster.round() == cluster.round() == ["nodename=gpu-[0-1] weight=20"]
    assert len(cluster.said) == 1
    assert "Invalid node name" in cluster.said[0]
