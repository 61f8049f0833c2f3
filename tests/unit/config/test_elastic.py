"""Pools that follow the queue: how their size is written, and what does not go with them."""

from __future__ import annotations

from typing import Any

from config import load_config
from tests.stacks import dev, with_change
from tests.unit.config.messages import complaints


def elastic(**more: Any) -> dict[str, Any]:
    sections = with_change(dev(), "worker_nodes.default.size", {"min": 1, "max": 64})
    for key, value in more.items():
        sections = with_change(sections, f"worker_nodes.default.{key}", value)
    return sections


def test_a_range_and_a_number_say_how_many_nodes_there_are() -> None:
    pool = load_config(elastic(idle_timeout="10m")).worker_nodes["default"]
    assert (pool.is_elastic, pool.least, pool.most) == (True, 1, 64)
    fixed = load_config(dev()).worker_nodes["default"]
    assert (fixed.is_elastic, fixed.least, fixed.most) == (False, 2, 2)


def test_preemptible_is_for_elastic_pools_where_the_machines_are_somebody_else_s() -> None:
    assert load_config(elastic(preemptible=True)).worker_nodes["default"].gives_back
    assert not load_config(elastic()).worker_nodes["default"].gives_back
    (told,) = complaints(with_change(dev(), "worker_nodes.default.preemptible", True))
    assert told == (
        "worker_nodes.default.preemptible: does nothing for a pool of a fixed size; write size: {min: 0, max: 2}, or "
        "remove it"
    )
