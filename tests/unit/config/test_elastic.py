"""Pools that follow the queue: how their size is written, and what does not go with them."""

from __future__ import annotations

from typing import Any

from config import load_config
from tests.stacks import dev, with_change


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


def test_preemptible_nodes_of_elastic_pools_give_their_jobs_back() -> None:
    assert load_config(elastic(preemptible=True)).worker_nodes["default"].gives_back
    assert not load_config(elastic()).worker_nodes["default"].gives_back
