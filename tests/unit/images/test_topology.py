"""Slurm's switch tree: how it is written, where nodes are, and what the API server and Slurm may refuse.

tests/slurm and tests/e2e have when it is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from unittest.mock import Mock

import pytest

from images.common.command import Result
from images.common.slurm_node import TOPOLOGY_REASON
from images.controller.configuration import TOPOLOGY_CONF
from images.controller.slurmctld import Slurmctld
from images.controller.topology import (
    LABELS_FILE,
    LONGEST_NAME,
    PATIENCE_SECONDS,
    SPACING_SECONDS,
    Path,
    Places,
    TopologyKeeper,
    render,
    switch_name,
)
from tests.fakes.commands import FakeClock, FakeRunner

A: Path = ("core", "a")
B: Path = ("core", "b")


def test_nodes_hang_below_their_switches_and_one_root_joins_all() -> None:
    places: dict[str, Path] = {"gpu-0": A, "gpu-1": A, "gpu-2": B, "cpu-0": ()}
    assert render(places).splitlines()[1:] == [
        "SwitchName=core.a Nodes=gpu-[0-1]",
        "SwitchName=core.b Nodes=gpu-2",
        "SwitchName=unknown Nodes=cpu-0",
        "SwitchName=core Switches=core.a,core.b",
        "SwitchName=root Switches=core,unknown",
    ]


@pytest.mark.parametrize("path", [("root",), ("unknown",), ("a.b", "c"), ("x" * 63, "y" * 63)])
def test_a_name_that_could_be_taken_for_another_is_told_apart_by_a_digest(path: Path) -> None:
    name = switch_name(path)
    assert len(name) <= LONGEST_NAME
    assert name not in {"root", "unknown", "a.b.c"}
    assert name != switch_name((*path[:-1], path[-1][:-1] + "_"))


def test_a_node_that_is_being_replaced_keeps_its_place_until_the_new_one_is_known() -> None:
    pods, nodes = Mock(), Mock()
    pods.values.return_value, nodes.values.return_value = {"gpu-0": "m1"}, {"m1": {"x": "a"}}
    places = Places(pods, nodes)
    places.of(["gpu-0"], ["x"])
    pods.values.return_value = {"gpu-0": ""}
    assert places.of(["gpu-0"], ["x"]) == {"gpu-0": ("a",)}
    pods.values.return_value, nodes.values.return_value = {"gpu-0": "m2"}, {"m2": {"x": "b"}}
    assert places.of(["gpu-0"], ["x"]) == {"gpu-0": ("b",)}
    assert places.of(["gpu-0"], ["x"], off={"gpu-0"}) == {"gpu-0": ()}
    pods.values.return_value = {}
    assert places.of(["gpu-0"], ["x"]) == {"gpu-0": ()}, "one that was off has forgotten its place"


class World:
    """A slurmctld with one node that waits for its place, and a keeper that looks at it every second."""

    def __init__(self) -> None:
        self.clock, self.accepts, self.reloads, self.reason = FakeClock(), True, 0, TOPOLOGY_REASON
        self.places = Mock(synced=True, of=lambda names, _keys, _off: dict.fromkeys(names, A))
        self.files = {LABELS_FILE: "x\ny\n", TOPOLOGY_CONF: render({})}
        runner = FakeRunner(
            {"scontrol show nodes": self.show, "scontrol update nodename=n-0 state=undrain": self.undrain}
        )
        self.keeper = TopologyKeeper(
            locations=lambda: self.places, slurmctld=Slurmctld(runner=runner, clock=self.clock),
            published=lambda: self.files, reload=self.reload, log=lambda _: None,
        )  # fmt: skip

    def show(self, _: Sequence[str]) -> Result:
        drain, reason = ("+DRAIN", f" Reason={self.reason} [slurm@2026-01-01T00:00:00]") if self.reason else ("", "")
        return Result(code=0, stdout=f"NodeName=n-0 Arch=x86_64 State=IDLE{drain}+DYNAMIC_NORM Weight=1{reason}")

    def undrain(self, _: Sequence[str]) -> Result:
        self.reason = ""
        return Result(code=0)

    def reload(self, text: str) -> bool:
        self.reloads += 1
        self.files = {**self.files, TOPOLOGY_CONF: text} if self.accepts else self.files
        return self.accepts

    def run(self, seconds: float) -> None:
        for _ in range(int(seconds)):
            self.keeper.round()
            self.clock.sleep(1)


def test_a_tree_that_slurm_does_not_take_lifts_no_drain_and_is_tried_again() -> None:
    world = World()
    world.accepts = False
    world.run(5 + 2 * SPACING_SECONDS)
    assert 2 <= world.reloads <= 4
    assert world.reason
    world.accepts = True
    world.run(SPACING_SECONDS + 5)
    assert not world.reason


def test_without_an_answer_of_the_api_server_a_node_waits_for_a_while_and_then_takes_jobs() -> None:
    world = World()
    world.places.synced = False
    world.run(PATIENCE_SECONDS - 1)
    assert (world.reloads, bool(world.reason)) == (0, True)
    world.run(10)
    assert (world.reloads, world.reason) == (1, "")
    world.files = {**world.files, TOPOLOGY_CONF: "other"}
    world.run(100)
    assert world.reloads == 1, "nobody waits: the tree from before stays"
