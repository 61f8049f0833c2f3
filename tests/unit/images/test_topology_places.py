"""Where Slurm's nodes are: the labels of the machines of their pods."""

from __future__ import annotations

from collections.abc import Mapping

from images.controller.topology_places import Places, labels_of, node_of


class Copy:
    """What a follower has."""

    def __init__(self, values: Mapping[str, object], *, synced: bool = True) -> None:
        self.synced = synced
        self.content = dict(values)

    def values(self) -> dict[str, object]:
        return dict(self.content)


def test_a_node_is_where_the_machine_of_its_pod_is() -> None:
    pods, nodes = Copy({"gpu-0": "m1", "gpu-1": ""}), Copy({"m1": {"x": "a"}})
    assert Places(pods, nodes).of(["gpu-0", "gpu-1", "gpu-2"], ["x"]) == {"gpu-0": ("a",), "gpu-1": (), "gpu-2": ()}  # type: ignore[arg-type]


def test_a_node_that_is_being_replaced_keeps_its_place_until_the_new_one_is_known() -> None:
    pods, nodes = Copy({"gpu-0": "m1"}), Copy({"m1": {"x": "a"}})
    places = Places(pods, nodes)  # type: ignore[arg-type]
    places.of(["gpu-0"], ["x"])
    pods.content = {"gpu-0": ""}
    assert places.of(["gpu-0"], ["x"]) == {"gpu-0": ("a",)}
    pods.content = {"gpu-0": "m2"}
    nodes.content = {"m2": {"x": "b"}}
    assert places.of(["gpu-0"], ["x"]) == {"gpu-0": ("b",)}


def test_a_node_that_is_off_has_no_place_and_forgets_the_one_before() -> None:
    pods, nodes = Copy({"gpu-0": "m1"}), Copy({"m1": {"x": "a"}})
    places = Places(pods, nodes)  # type: ignore[arg-type]
    assert places.of(["gpu-0"], ["x"], off={"gpu-0"}) == {"gpu-0": ()}
    places.of(["gpu-0"], ["x"])
    places.of(["gpu-0"], ["x"], off={"gpu-0"})
    pods.content = {}
    assert places.of(["gpu-0"], ["x"]) == {"gpu-0": ()}


def test_labels_that_were_taken_away_take_the_place_away() -> None:
    pods, nodes = Copy({"gpu-0": "m1"}), Copy({"m1": {"x": "a"}})
    places = Places(pods, nodes)  # type: ignore[arg-type]
    places.of(["gpu-0"], ["x"])
    nodes.content = {"m1": {}}
    assert places.of(["gpu-0"], ["x"]) == {"gpu-0": ()}


def test_objects_without_what_is_looked_for_are_no_error() -> None:
    assert node_of({"metadata": {"name": "p"}}) == ""
    assert labels_of({"metadata": {"name": "n"}}) == {}
