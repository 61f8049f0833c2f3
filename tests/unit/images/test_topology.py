"""Slurm's switch tree: how it is written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from images.controller.check import Scratch, scratch_files
from images.controller.topology import (
    LONGEST_NAME,
    TOPOLOGY_CONF,
    path_of,
    render,
    switch_name,
)
from images.controller.topology import Path as SwitchPath
from tests.unit.images.switches import A, B, tree


def test_nodes_hang_below_their_switches_and_one_root_joins_all() -> None:
    places: dict[str, SwitchPath] = {"gpu-0": A, "gpu-1": A, "gpu-2": B, "cpu-0": ()}
    assert render(places).splitlines()[1:] == [
        "SwitchName=core.a Nodes=gpu-[0-1]",
        "SwitchName=core.b Nodes=gpu-2",
        "SwitchName=unknown Nodes=cpu-0",
        "SwitchName=core Switches=core.a,core.b",
        "SwitchName=root Switches=core,unknown",
    ]


def test_a_label_that_is_missing_alone_is_one_unknown_switch_on_the_way() -> None:
    assert path_of({"x": "core", "z": "leaf"}, ["x", "y", "z"]) == ("core", "unknown", "leaf")
    assert path_of({"other": "1"}, ["x", "y"]) == ()
    assert path_of({"x": "", "y": ""}, ["x", "y"]) == ()


def test_a_switch_keeps_its_name_when_others_come_and_go() -> None:
    alone = tree(render({"n-0": A}))[0]
    among = tree(render({"n-0": A, "n-1": B, "n-2": ("else", "a")}))[0]
    assert alone.items() <= among.items()


@pytest.mark.parametrize("path", [("root",), ("unknown",), ("a.b", "c"), ("x" * 63, "y" * 63)])
def test_a_name_that_could_be_taken_for_another_is_told_apart_by_a_digest(path: SwitchPath) -> None:
    name = switch_name(path)
    assert len(name) <= LONGEST_NAME
    assert name not in {"root", "unknown", "a.b.c"}
    assert name != switch_name((*path[:-1], path[-1][:-1] + "_"))


_VALUE = st.text("abC19._-", min_size=1, max_size=63)
_PATH = st.one_of(
    st.just(()), st.lists(st.one_of(_VALUE, st.sampled_from(["root", "unknown"])), min_size=1, max_size=4)
)


@given(st.dictionaries(st.integers(0, 400).map(lambda number: f"pool-{number}"), _PATH.map(tuple), max_size=40))
def test_the_tree_is_connected_and_has_each_node_once(places: dict[str, SwitchPath]) -> None:
    depth = max((len(path) for path in places.values()), default=0)
    places = {name: path + ("x",) * (depth - len(path)) if path else () for name, path in places.items()}

    leaves, inner = tree(render(places))

    assert sorted(node for nodes in leaves.values() for node in nodes) == sorted(places or ["none"])
    reached, waiting = set(), ["root"]
    while waiting:
        reached.add(waiting[-1])
        waiting += inner.get(waiting.pop(), [])
    assert reached == leaves.keys() | inner.keys()
    children = [child for below in inner.values() for child in below]
    assert len(children) == len(set(children)), "a switch below two others"


def test_the_trial_has_the_same_tree_with_nodes_of_its_own() -> None:
    scratch = Scratch(directory="/tmp/s", slurmctld_port=1, slurmd_port=2)
    places: dict[str, SwitchPath] = {"n-0": A, "n-1": A, "n-2": B, "m-7": ()}
    files = scratch_files({"slurm.conf": "ClusterName=a\n", TOPOLOGY_CONF: render(places)}, scratch)
    leaves, inner = tree(files[TOPOLOGY_CONF])
    assert inner == tree(render(places))[1]
    assert leaves == {
        "core.a": ["slurmstack-scratch-0"],
        "core.b": ["slurmstack-scratch-1"],
        "unknown": ["slurmstack-scratch-2"],
    }
    assert "NodeName=slurmstack-scratch-[0-2] " in files["slurm.conf"]
