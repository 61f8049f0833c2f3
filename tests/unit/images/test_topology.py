"""Slurm's switch tree: how it is written, when it is read again, and what nodes that come wait for."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from unittest.mock import Mock

import pytest

from images.common.command import Result
from images.common.slurm_node import PLACED, TOPOLOGY_REASON
from images.common.slurm_records import expand
from images.controller.check import scratch_files
from images.controller.configuration import TOPOLOGY_CONF
from images.controller.slurmctld import Slurmctld
from images.controller.topology import (
    LABELS_FILE,
    LONGEST_NAME,
    PATIENT_SECONDS,
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


def tree(text: str) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Nodes of each leaf switch, and switches below each other one."""
    leaves: dict[str, list[str]] = {}
    inner: dict[str, list[str]] = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, children = line.removeprefix("SwitchName=").split(" ")
            kind, _, listed = children.partition("=")
            assert name not in leaves.keys() | inner.keys(), f"{name} twice"
            (leaves if kind == "Nodes" else inner)[name] = list(expand(listed))
    return leaves, inner


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


def test_the_trial_has_the_same_tree_with_nodes_of_its_own() -> None:
    places: dict[str, Path] = {"n-0": A, "n-1": A, "n-2": B, "m-7": ()}
    files = scratch_files({"slurm.conf": "ClusterName=a\n", TOPOLOGY_CONF: render(places)}, "/tmp/s", (1, 2))
    leaves, inner = tree(files[TOPOLOGY_CONF])
    assert inner == tree(render(places))[1]
    assert leaves == {
        "core.a": ["slurmstack-scratch-0"],
        "core.b": ["slurmstack-scratch-1"],
        "unknown": ["slurmstack-scratch-2"],
    }
    assert "NodeName=slurmstack-scratch-[0-2] " in files["slurm.conf"]


# ---------------------------------------------------------------- where nodes are


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


# ---------------------------------------------------------------- when it is read


class Where(Places):
    """Where nodes are, as it is told."""

    synced = True

    def __init__(self) -> None:
        super().__init__()
        self.paths: dict[str, Path] = {}

    def of(self, names: Iterable[str], keys: Iterable[str], off: Container[str] = ()) -> dict[str, Path]:
        assert tuple(keys) == ("x", "y")
        return {name: () if name in off else self.paths.get(name, ()) for name in names}


class World:
    """A slurmctld with node records, and a keeper that looks at it every second."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.places = Where()
        self.nodes: dict[str, str] = {}
        self.more: dict[str, str] = {}
        """More states of nodes."""
        self.files: dict[str, str] = {LABELS_FILE: "x\ny\n", TOPOLOGY_CONF: render({})}
        self.reloads: list[str] = []
        self.accepts = True
        self.undrained: list[str] = []
        self.left: list[str] = []
        """To `elastic`."""
        runner = FakeRunner({"scontrol show nodes": self.show, "scontrol update": self.update})
        self.keeper = TopologyKeeper(
            locations=lambda: self.places, slurmctld=Slurmctld(runner=runner, clock=self.clock),
            published=lambda: self.files, reload=self.reload, log=lambda _: None,
        )  # fmt: skip

    def show(self, _: Sequence[str]) -> Result:
        lines = [
            f"NodeName={name} Arch=x86_64 "
            f"State=IDLE{'+DRAIN' if reason else ''}+DYNAMIC_NORM{self.more.get(name, '')} Weight=1 "
            + (f"Reason={reason} [slurm@2026-01-01T00:00:00]" if reason else "")
            for name, reason in self.nodes.items()
        ]
        return Result(code=0, stdout="\n".join(lines))

    def update(self, argv: Sequence[str]) -> Result:
        names, change = expand(argv[2].removeprefix("nodename=")), argv[3]
        undrains = change == "state=undrain"
        assert undrains or change == f"reason={PLACED}"
        (self.undrained if undrains else self.left).extend(names)
        self.nodes.update(dict.fromkeys(names, "" if undrains else PLACED))
        return Result(code=0)

    def reload(self, text: str) -> bool:
        self.reloads.append(text)
        if self.accepts:
            self.files = {**self.files, TOPOLOGY_CONF: text}
        return self.accepts

    def register(self, *names: str, path: Path = A) -> None:
        for name in names:
            self.nodes[name] = TOPOLOGY_REASON
            self.places.paths[name] = path

    def run(self, seconds: float) -> None:
        for _ in range(int(seconds)):
            self.keeper.round()
            self.clock.sleep(1)


@pytest.fixture
def world() -> World:
    return World()


def test_a_node_that_has_left_goes_after_a_while(world: World) -> None:
    world.register("n-0", "n-1")
    world.run(20)
    del world.nodes["n-1"]
    world.run(PATIENT_SECONDS - 2)
    assert len(world.reloads) == 1
    world.run(5)
    assert tree(world.reloads[-1])[0] == {"core.a": ["n-0"]}


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
    world.run(40)
    assert tree(world.reloads[-1])[0] == {"core.a": ["gpu-0"]}
    world.more["gpu-0"] = "+CLOUD+POWERING_DOWN"
    world.run(40)
    assert tree(world.reloads[-1])[0] == {"gpu-unplaced": ["gpu-0"]}
