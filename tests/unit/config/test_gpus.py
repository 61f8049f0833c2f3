"""`resources.gpus`: a number, or a map that says whose GPUs they are and how they are divided."""

from __future__ import annotations

import itertools
from functools import cache
from typing import Any

import pytest

from config import load_config
from config.sections.machines import Gpus, has_room
from slurm.conf import render, tracked_resources
from slurm.sizing import extended_resources, node_conf
from tests import stacks
from tests.stacks import with_change
from tests.unit.config.messages import minimum

GPUS = "worker_nodes.gpu.resources.gpus"


def with_gpus(gpus: Any, **pool: Any) -> dict[str, Any]:
    """The stack on somebody's cluster with these GPUs in the pool that has some."""
    sections = with_change(stacks.existing(), GPUS, gpus)
    for key, value in pool.items():
        sections = with_change(sections, f"worker_nodes.gpu.{key}", value)
    return sections


def offered(gpus: Any, **pool: Any) -> tuple[str, dict[str, str]]:
    """What a node says to Slurm that it has, and what its pod asks Kubernetes for."""
    found = load_config(with_gpus(gpus, **pool)).worker_nodes["gpu"]
    return node_conf("gpu", found).partition(" Gres=")[2], extended_resources(found.resources.gpus)


def test_a_number_is_the_count_of_nvidia_s() -> None:
    assert load_config(stacks.existing()).worker_nodes["gpu"].resources.gpus == Gpus(count=8)
    assert load_config(stacks.existing()).worker_nodes["cpu"].resources.gpus == Gpus(count=0)
    assert offered({"count": 8}) == offered(8) == ("gpu:8", {"nvidia.com/gpu": "8"})
    assert offered(0) == ("", {})


@pytest.mark.parametrize(
    ("gpus", "gres", "resources"),
    [
        ({"count": 8, "type": "h100"}, "gpu:h100:8", {"nvidia.com/gpu": "8"}),
        ({"count": 8, "shard": 32}, "gpu:8,shard:32", {"nvidia.com/gpu": "8"}),
        ({"count": 2, "type": "l40s", "shard": 2}, "gpu:l40s:2,shard:2", {"nvidia.com/gpu": "2"}),
        ({"count": 8, "vendor": "amd"}, "gpu:8", {"amd.com/gpu": "8"}),
        ({"count": 8, "vendor": "amd", "type": "mi300x", "shard": 16}, "gpu:mi300x:8,shard:16", {"amd.com/gpu": "8"}),
    ],
)
def test_slurm_and_kubernetes_are_told_the_same(gpus: Any, gres: str, resources: dict[str, str]) -> None:
    assert offered(gpus) == (gres, resources)


def test_parts_of_gpus_are_asked_for_by_their_profiles() -> None:
    gpus = {"count": 2, "mig": {"3g.40gb": 2, "1g.10gb": 4, "1g.10gb+me": 1}}
    assert offered(gpus, confinement="required") == (
        "gpu:1g.10gb:4,gpu:1g.10gb.me:1,gpu:3g.40gb:2",
        {"nvidia.com/mig-1g.10gb": "4", "nvidia.com/mig-1g.10gb.me": "1", "nvidia.com/mig-3g.40gb": "2"},
    )


def test_room_is_what_nvidia_s_places_for_parts_leave() -> None:
    """Against all ways to divide one or two GPUs of eight parts of memory."""
    places = {1: (1, range(7)), 2: (2, (0, 2, 4)), 3: (4, (0, 4)), 4: (4, (0,)), 7: (8, (0,))}

    @cache
    def divisions(held: frozenset[int] = frozenset(), cores: int = 7) -> set[tuple[int, ...]]:
        found: set[tuple[int, ...]] = {()}
        for size, (memory, starts) in places.items():
            for start in starts:
                taken = frozenset(range(start, start + memory))
                if size <= cores and not taken & held:
                    found |= {tuple(sorted((size, *rest))) for rest in divisions(held | taken, cores - size)}
        return found

    one = divisions()
    two = {tuple(sorted((*left, *right))) for left in one for right in one}
    for count, possible in ((1, one), (2, two)):
        for counts in itertools.product(range(15), range(8), range(5), range(3), range(3)):
            sizes = dict(zip((1, 2, 3, 4, 7), counts, strict=True))
            asked = tuple(size for size, number in sizes.items() for _ in range(number))
            assert has_room(sizes, count) == (asked in possible), (count, sizes)


def test_shares_are_known_to_slurm_only_where_there_are_some() -> None:
    with_shares, without = load_config(with_gpus({"count": 8, "shard": 32})), load_config(stacks.existing())
    assert "\nGresTypes=gpu,shard\n" in render(with_shares)["slurm.conf"]
    assert "\nGresTypes=gpu\n" in render(without)["slurm.conf"]
    assert tracked_resources(with_shares) == ["gres/gpu", "gres/shard"]
    assert tracked_resources(without) == ["gres/gpu"]


@pytest.mark.parametrize("gpus", [{"count": 8, "vendor": "amd"}, 8])
def test_what_gpus_there_are_changes_nothing_for_workers_that_leave_and_nodes_that_come(gpus: Any) -> None:
    after = render(load_config(stacks.dev()))["gres.conf"]
    assert all(line.startswith("#") for line in after.splitlines() if line)
    assert render(load_config(with_gpus(gpus)))["gres.conf"] == after


@pytest.mark.parametrize(
    ("gpus", "resource"),
    [
        ({"count": 8, "type": "h100", "shard": 8}, "gres/shard"),
        ({"count": 8, "type": "h100"}, "gres/gpu:h100"),
        (8, "gres/gpu:h200"),
    ],
)
def test_limits_may_name_what_there_is(gpus: Any, resource: str) -> None:
    config = load_config({**with_gpus(gpus), "accounts": {"a": {"grp_tres": {resource: 1}}}})
    assert resource in tracked_resources(config)


def test_the_preset_counts_the_gpus_that_a_map_does_not() -> None:
    pool = load_config(minimum(("worker_nodes.default.resources", {"gpus": {"shard": 16}}))).worker_nodes["default"]
    assert pool.resources.gpus == Gpus(count=8, shard=16)
    assert pool.gpu_types == ("h100",)
