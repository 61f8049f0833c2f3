"""`resources.gpus`: a number, or a map that says whose GPUs they are and how they are divided."""

from __future__ import annotations

from typing import Any

import pytest

from config import load_config
from config.sections.machines import Gpus
from slurm.conf import render, tracked_resources
from slurm.sizing import extended_resources, node_conf
from tests import stacks
from tests.stacks import with_change

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
    return node_conf("gpu", found).partition(" Gres=")[2], extended_resources(found)


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


def test_gpus_of_several_types_are_slurm_s_by_type_and_kubernetes_by_their_sum() -> None:
    gpus = [{"type": "gtx970", "count": 1}, {"type": "A100", "count": 2}]
    expected = ("gpu:gtx970:1,gpu:A100:2", {"nvidia.com/gpu": "3"})
    assert offered(gpus, confinement="required") == offered({"kinds": gpus}, confinement="required") == expected
    assert offered(gpus[:1]) == ("gpu:gtx970:1", {"nvidia.com/gpu": "1"})
    elastic = load_config(with_gpus(gpus, size={"max": 4}, confinement="required"))
    assert [line.partition(" ")[2] for line in render(elastic)["gres.conf"].splitlines() if "NodeName" in line] == [
        "Name=gpu Type=gtx970 File=/dev/gpu[0-0]",
        "Name=gpu Type=A100 File=/dev/gpu[1-2]",
    ]


def test_shares_are_known_to_slurm_only_where_there_are_some() -> None:
    with_shares, without = load_config(with_gpus({"count": 8, "shard": 32})), load_config(stacks.existing())
    assert "\nGresTypes=gpu,shard\n" in render(with_shares)["slurm.conf"]
    assert "\nGresTypes=gpu\n" in render(without)["slurm.conf"]
    assert tracked_resources(with_shares) == ["gres/gpu", "gres/shard"]
    assert tracked_resources(without) == ["gres/gpu"]
