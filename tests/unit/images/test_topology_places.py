"""Where Slurm's nodes are: the labels of the machines of their pods."""

from __future__ import annotations

from collections.abc import Mapping

from images.controller.topology_places import Places


class Copy:
    """What a follower has."""

    def __init__(self, values: Mapping[str, object]) -> None:
        self.synced = True
        self.content = dict(values)

    def values(self) -> dict[str, object]:
        return dict(self.content)


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
