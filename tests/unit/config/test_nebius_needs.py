"""What a stack takes of its cloud."""

from __future__ import annotations

from typing import Any

import pytest

from config import load_config
from config.nebius.needs import Needs, NodeNeed, needs
from tests.stacks import with_change

H100 = "gpu-h100-sxm"


def _stack(**pool: Any) -> dict[str, Any]:
    default = {
        "size": 2,
        "platform": H100,
        "preset": "8gpu-128vcpu-1600gb",
        "gpu_cluster": {"infiniband_fabric": "fabric-6"},
        "boot_disk": {"size": "512Gi"},
    }
    return {
        "cloud": {"kind": "nebius", "project_id": "project-e00a", "region": "eu-north1", "subnet_id": "vpcsubnet-e00a"},
        "worker_nodes": {"default": default | pool},
        "jail": {"size": "2Ti"},
        "login": {"service_type": "LoadBalancer"},
        "topology": {"plugin": "none"},
    }


def _needs(sections: dict[str, Any]) -> Needs:
    return needs(load_config(sections))


def _workers(**pool: Any) -> NodeNeed:
    return next(node for node in _needs(_stack(**pool)).nodes if node.role == "worker")


def test_the_example_takes_two_machines_with_gpus_and_three_for_ourselves() -> None:
    found = _needs(_stack())
    assert found.machines == 2 + 3
    assert (_workers().count, _workers().size.gpus, _workers().platform) == (2, 8, H100)
    assert sum(node.count * node.disk_gib for node in found.nodes) == 2 * 512 + 3 * 128
    assert found.volume_gib == {"NETWORK_SSD": 10 + 10}, "the controller's state, and the database"
    assert found.filesystem_gib == {"NETWORK_SSD": 2048}
    assert found.fabrics == {"fabric-6": (H100,)}


@pytest.mark.parametrize(
    ("pool", "count", "most"),
    [
        ({"size": 0}, 0, 0),  # and no machine to learn from where there are no workers
        ({"size": {"min": 3, "max": 150}}, 3, 150),
        # On a fabric each group of a hundred keeps the machine that the autoscaler learns from.
        ({"size": {"min": 0, "max": 250}}, 3, 250),
    ],
)
def test_machines_at_the_beginning_and_at_most(pool: dict[str, Any], count: int, most: int) -> None:
    found = _workers(**pool)
    assert (found.count, found.most) == (count, most)


@pytest.mark.parametrize(("size", "count", "most"), [(0, 0, 0), (5, 1, 5), (50, 1, 10)])
def test_login_machines_follow_the_login_nodes_up_to_their_own_limit(size: int, count: int, most: int) -> None:
    found = _needs(with_change(_stack(), "login.size", size))
    assert [(node.count, node.most) for node in found.nodes if node.role == "login"] == [(count, most)]
