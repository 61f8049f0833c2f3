"""When a roll looks at Slurm at all, what it leaves alone, and what it says; tests/slurm/test_rolls.py is real."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from images.common.command import Result
from images.common.elastic.view import Pod
from images.common.slurm_node import ROLLS
from images.elastic.nodes import Nodes, SlurmError
from images.elastic.rolls import FixedPool
from images.elastic.rounds import ROLL_SECONDS, ROLLED_SECONDS, ROLLING_SECONDS, RollRounds
from tests.fakes.commands import FakeRunner

DRAINED = f"IDLE+DRAIN Reason={ROLLS} [root@2026-01-01T00:00:00]"


class World:
    """A pool of three nodes, whose pods go when they are told to."""

    def __init__(self, *, old: Iterable[int] = (), states: str = "IDLE") -> None:
        self.states = {f"cpu-{number}": states for number in range(3)}
        self.there = {
            name: Pod(name=name, pool="cpu", revision="old" if int(name[-1]) in old else "new", is_ready=True)
            for name in self.states
        }
        self.answers = True
        self.meanwhile: dict[str, str] = {}
        """What somebody does between two questions."""
        self.runner = FakeRunner(
            {"scontrol show nodes": self._show, "squeue": Result(code=0, stdout="1000 cpu-1\n500 cpu-2\n")}
        )
        self.log: list[str] = []
        self.synced = True
        given: dict[str, Any] = {"nodes": Nodes(self.log.append, self.runner), "pods": self}
        pool = FixedPool(name="cpu", size=3, revision="new", max_unavailable="1")
        self.rounds = RollRounds(
            **given, pools=lambda: {"cpu": pool, "others": None}, there=lambda: self.there,
            synced=lambda: self.synced, log=self.log.append,
        )  # fmt: skip

    def end(self, pods: Iterable[Pod]) -> str:
        self.runner.commands.append(f"end {' '.join(pod.name for pod in pods)}")
        return ""

    def _show(self, _: Sequence[str]) -> Result:
        lines = [f"NodeName={name} State={states}" for name, states in self.states.items()]
        self.states |= self.meanwhile
        return Result(code=0, stdout="\n".join(lines)) if self.answers else Result(code=1, stderr="no answer")

    def done(self) -> list[str]:
        self.runner.commands.clear()
        self.rounds.look()
        return [one for one in self.runner.commands if " show " not in one and "squeue" not in one]


def test_who_is_drained_by_somebody_between_two_looks_keeps_that_reason() -> None:
    world = World(old=(0,))
    world.meanwhile = {"cpu-0": "IDLE+DRAIN Reason=a fan [root@2026-01-01T00:00:00]"}
    assert world.done() == []


def test_slurm_is_asked_while_nodes_are_replaced_and_once_at_the_start_for_what_was_left() -> None:
    world = World()
    world.states["cpu-1"] = DRAINED
    assert world.rounds.look() == ROLL_SECONDS
    assert world.runner.commands[-1] == "scontrol update nodename=cpu-1 state=resume"
    world.states["cpu-1"] = "IDLE"
    assert world.rounds.look() == ROLLING_SECONDS
    world.runner.commands.clear()
    assert world.rounds.look() == ROLLED_SECONDS
    assert world.runner.commands == []


def test_nothing_is_done_without_a_whole_copy_of_kubernetes_or_without_slurmctld() -> None:
    world = World(old=(0, 1, 2))
    world.synced = False
    assert world.done() == []
    world.synced, world.answers = True, False
    with pytest.raises(SlurmError):
        world.done()


def test_it_says_how_far_it_is_and_what_it_waits_for_once() -> None:
    world = World(old=(0, 1, 2), states="ALLOCATED")
    world.rounds.look()
    world.states["cpu-2"] = DRAINED.replace("IDLE", "MIXED")
    world.rounds.look()
    world.rounds.look()
    said = [text for text in world.log if text.startswith("pool")]
    assert said == [
        "pool cpu: 3 of 3 nodes still to get their new pods",
        "pool cpu: 3 of 3 nodes still to get their new pods; waiting for their jobs: cpu-2",
    ]
    world.there = {name: Pod(name=name, pool="cpu", revision="new", is_ready=name != "cpu-2") for name in world.there}
    world.there["cpu-0"] = Pod(name="cpu-0", pool="cpu", revision="old", is_ready=True)
    world.states["cpu-2"] = "IDLE"
    world.rounds.look()
    assert world.log[-1].endswith("1 of 3 nodes still to get their new pods; not ready with their new pods: cpu-2")
    world.there["cpu-0"] = world.there["cpu-1"]
    world.rounds.look()
    assert world.log[-1] == "pool cpu: no node has an old pod any more"
