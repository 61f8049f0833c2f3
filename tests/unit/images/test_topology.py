"""Slurm's switch tree: how it is written, and where nodes are; tests/slurm has when it is read."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from images.common.slurm_records import expand
from images.controller.check import scratch_files
from images.controller.configuration import TOPOLOGY_CONF
from images.controller.topology import (
    LONGEST_NAME,
    Path,
    Places,
    render,
    switch_name,
)

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
