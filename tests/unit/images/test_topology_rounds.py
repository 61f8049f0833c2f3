"""When the switch tree is read again, and what nodes that come wait for."""

from __future__ import annotations

from collections.abc import Container, Iterable

import pytest

from images.common.command import Result
from images.common.slurm_node import PLACED, TOPOLOGY_REASON
from images.common.slurm_records import expand
from images.controller.control import Slurmctld
from images.controller.node_list import NodeList
from images.controller.topology import LABELS_FILE, TOPOLOGY_CONF, render
from images.controller.topology import Path as SwitchPath
from images.controller.topology_places import Nowhere
from images.controller.topology_rounds import (
    LONGEST_SETTLE_SECONDS,
    REMOVAL_SECONDS,
    SPACING_SECONDS,
    TopologyKeeper,
)
from tests.fakes.commands import FakeClock, FakeRunner
from tests.unit.images.switches import A, tree


class World(Slurmctld, Nowhere):
    """A slurmctld with node records, and a keeper that looks at it every second."""

    def __init__(self) -> None:
        super().__init__(runner=FakeRunner())
        self.clock = FakeClock()
        self.places: dict[str, SwitchPath] = {}
        self.synced = True
        self.nodes: dict[str, str] = {}
        self.more: dict[str, str] = {}
        """More states of nodes."""
        self.files: dict[str, str] = {LABELS_FILE: "x\ny\n", TOPOLOGY_CONF: render({})}
        self.reloads: list[str] = []
        self.accepts = True
        self.undrained: list[str] = []
        self.left: list[str] = []
        """To `elastic`."""
        self.refused: set[str] = set()
        self.log: list[str] = []
        self.node_list = NodeList(slurmctld=self, clock=self.clock)
        self.keeper = TopologyKeeper(
            locations=lambda: self, nodes=self.node_list, published=lambda: self.files, reload=self.reload,
            log=self.log.append, clock=self.clock,
        )  # fmt: skip

    def of(self, names: Iterable[str], keys: Iterable[str], off: Container[str] = ()) -> dict[str, SwitchPath]:
        assert tuple(keys) == ("x", "y")
        return {name: () if name in off else self.places.get(name, ()) for name in names}

    def nodes_text(self) -> str | None:
        lines = [
            f"NodeName={name} Arch=x86_64 "
            f"State=IDLE{'+DRAIN' if reason else ''}+DYNAMIC_NORM{self.more.get(name, '')} Weight=1 "
            + (f"Reason={reason} [slurm@2026-01-01T00:00:00]" if reason else "")
            for name, reason in self.nodes.items()
        ]
        return "\n".join(lines)

    def delete_node(self, name: str) -> Result:
        raise AssertionError(name)

    def undrain(self, nodes: str) -> Result:
        names = expand(nodes)
        if self.refused & set(names):
            return Result(code=1, stderr="Invalid node name specified")
        self.undrained += names
        self.nodes.update(dict.fromkeys(names, ""))
        return Result(code=0)

    def leave_to_elastic(self, nodes: str) -> Result:
        self.left += expand(nodes)
        self.nodes.update(dict.fromkeys(expand(nodes), PLACED))
        return Result(code=0)

    def reload(self, text: str) -> bool:
        self.reloads.append(text)
        if self.accepts:
            self.files = {**self.files, TOPOLOGY_CONF: text}
        return self.accepts

    def register(self, *names: str, path: SwitchPath = A) -> None:
        for name in names:
            self.nodes[name] = TOPOLOGY_REASON
            self.places[name] = path

    def run(self, seconds: float) -> None:
        for _ in range(int(seconds)):
            self.keeper.round()
            self.clock.sleep(1)


@pytest.fixture
def world() -> World:
    return World()


def test_a_stream_of_nodes_that_never_ends_does_not_keep_the_first_waiting(world: World) -> None:
    for number in range(int(LONGEST_SETTLE_SECONDS) + 2):
        world.register(f"n-{number}")
        world.run(1)
    assert "n-0" in world.undrained


def test_a_record_that_was_made_again_is_read_although_the_file_is_the_same(world: World) -> None:
    world.register("n-0")
    world.run(5)
    world.run(20)
    world.register("n-0")
    world.run(5)
    assert len(world.reloads) == 2
    assert world.reloads[0] == world.reloads[1]
    assert world.undrained == ["n-0", "n-0"]


def test_a_node_that_has_left_goes_with_the_next_change_or_after_a_while(world: World) -> None:
    world.register("n-0", "n-1")
    world.run(20)
    del world.nodes["n-1"]
    world.run(REMOVAL_SECONDS - 2)
    assert len(world.reloads) == 1
    world.run(5)
    assert tree(world.reloads[-1])[0] == {"core.a": ["n-0"]}


def test_a_node_that_has_left_meanwhile_does_not_keep_the_others(world: World) -> None:
    world.register("n-0", "n-1")
    world.refused = {"n-1"}
    world.run(5)
    assert world.undrained == ["n-0"]


def test_a_tree_that_slurm_does_not_take_lifts_no_drain_and_is_tried_again(world: World) -> None:
    world.accepts = False
    world.register("n-0")
    world.run(5)
    assert not world.undrained
    world.run(2 * SPACING_SECONDS)
    assert 2 <= len(world.reloads) <= 4
    world.accepts = True
    world.run(SPACING_SECONDS + 5)
    assert world.undrained == ["n-0"]


def test_without_a_tree_nothing_is_read_and_who_waited_for_another_agent_is_let_go(world: World) -> None:
    """Nodes of an elastic pool wait while they are off, and the tree was turned off meanwhile."""
    world.files = {"slurm.conf": "x"}
    world.register("n-0")
    world.nodes["n-1"] = "bad"
    world.run(20)
    assert not world.reloads
    assert world.undrained == ["n-0"]


def test_an_elastic_node_has_a_place_of_its_pool_s_until_it_is_up_and_again_when_it_is_off(world: World) -> None:
    world.register("gpu-0")
    world.more["gpu-0"] = "+CLOUD+POWERED_DOWN"
    world.run(5)
    assert tree(world.reloads[-1])[0] == {"gpu-unplaced": ["gpu-0"]}
    assert (world.left, world.undrained) == (["gpu-0"], []), "its pool may have no room now"
    world.more["gpu-0"] = "+CLOUD+POWERING_UP"
    world.run(30)
    assert len(world.reloads) == 1, "the tree is not read while a job waits for its node"
    world.more["gpu-0"] = "+CLOUD"
    world.run(5)
    assert tree(world.reloads[-1])[0] == {"core.a": ["gpu-0"]}
    world.more["gpu-0"] = "+CLOUD+POWERING_DOWN"
    world.run(30)
    assert len(world.reloads) == 2, "that a node is off is no reason to hurry"
    world.run(40)
    assert tree(world.reloads[-1])[0] == {"gpu-unplaced": ["gpu-0"]}
