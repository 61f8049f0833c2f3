"""What a stack takes of its cloud."""

from __future__ import annotations

from typing import Any

import pytest

from config import load_config
from config.nebius.needs import Needs, needs, pod_addresses
from tests import stacks
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
    }


def _needs(sections: dict[str, Any]) -> Needs:
    return needs(load_config(sections))


def test_the_example_of_two_machines_takes_sixteen_gpus_and_three_machines_for_ourselves() -> None:
    found = _needs(_stack())
    assert found.gpus == {H100: 16}
    assert found.machines == 2 + 3
    assert found.vcpus == 2 * 128 + 16 + 8 + 16, "workers, system, controller, login"
    assert sum(node.count * node.disk_gib for node in found.nodes) == 2 * 512 + 3 * 128
    assert found.volume_gib == {"NETWORK_SSD": 10 + 10}, "the controller's state, and the database"
    assert found.filesystem_gib == {"NETWORK_SSD": 2048}
    assert found.fabrics == {"fabric-6": (H100,)}
    assert found.load_balancers == 1


def test_a_cluster_that_is_already_there_takes_nothing_of_a_cloud() -> None:
    found = _needs(stacks.existing())
    assert (found.machines, found.vcpus, found.filesystems) == (0, 0, ())


@pytest.mark.parametrize(("size", "groups"), [(0, 1), (1, 1), (100, 1), (101, 2), (250, 3)])
def test_a_hundred_machines_go_into_one_node_group(size: int, groups: int) -> None:
    assert next(node for node in _needs(_stack(size=size)).nodes if node.role == "worker").groups == groups


def test_a_pool_keeps_the_node_groups_that_it_is_told_to() -> None:
    found = _needs(_stack(size=3, autoscaling={"groups": 2}))
    assert next(node for node in found.nodes if node.role == "worker").groups == 2


def test_machines_that_autoscaling_keeps_without_workers_count_too() -> None:
    found = _needs(_stack(size=0, autoscaling={"min_size": 3}))
    assert found.gpus == {H100: 24}


def test_each_node_group_on_a_fabric_keeps_the_machine_that_the_autoscaler_learns_from() -> None:
    sections = with_change(_stack(size={"min": 0, "max": 250}), "topology", {"plugin": "none"})
    (workers,) = (node for node in _needs(sections).nodes if node.role == "worker")
    assert (workers.groups, workers.count, workers.most) == (3, 3, 250)
    assert _needs(_stack(size=0)).gpus == {}, "and none where the pool has no workers"


def _elastic(**more: Any) -> tuple[int, int]:
    """Machines that an elastic pool begins with, and those that it may come to."""
    found = _needs({**_stack(**{"size": {"min": 0, "max": 150}, **more}), "topology": {"plugin": "none"}})
    (node,) = [node for node in found.nodes if node.role == "worker"]
    return node.count, node.most


def test_an_elastic_pool_begins_with_its_least_and_may_come_to_its_most() -> None:
    assert _elastic(size={"min": 3, "max": 150}) == (3, 150)
    assert _elastic() == (2, 150), "one machine in each group on a fabric"


@pytest.mark.parametrize(("surge", "machines"), [(0, 0), (2, 2 * 2), ("25%", 2 * 19)])
def test_an_update_with_surge_takes_more_machines_in_each_group(surge: int | str, machines: int) -> None:
    found = _needs(_stack(size=150, update_strategy={"max_surge": surge}))
    assert next(node for node in found.nodes if node.role == "worker").surge == machines


@pytest.mark.parametrize(("max_pods", "addresses"), [(8, 16), (32, 64), (33, 128), (64, 128), (110, 256), (256, 512)])
def test_a_machine_takes_twice_its_pods_rounded_up_to_a_power_of_two(max_pods: int, addresses: int) -> None:
    assert pod_addresses(max_pods) == addresses


def test_all_machines_take_addresses_for_their_pods() -> None:
    nodes = _needs(_stack(size=10)).nodes
    assert sum(node.count * node.addresses for node in nodes) == 10 * 64 + 3 * 256


def test_login_machines_follow_the_login_nodes() -> None:
    by_size = {size: _needs(with_change(_stack(), "login.size", size)) for size in (0, 5, 50)}
    login = {
        size: next((node.count, node.most) for node in found.nodes if node.role == "login")
        for size, found in by_size.items()
    }
    assert login == {0: (0, 0), 5: (1, 5), 50: (1, 10)}, "10: login_nodes.max_size"


def test_an_existing_file_system_takes_nothing_new_but_is_named() -> None:
    sections = _stack() | {
        "jail": {"size": "3Ti", "filesystem": {"id": "computefilesystem-e00a"}},
        "controller": {"filesystem": {"type": "NETWORK_HDD"}, "storage": "100Gi"},
        "accounting": {"database": {"filesystem": {"type": "NETWORK_SSD"}, "storage": "50Gi"}},
        "mounts": {"data": {"path": "/data", "size": "1.5Ti", "filesystem": {"type": "WEKA"}}},
    }
    found = _needs(sections)
    assert [(item.tag, item.size_gib, item.existing_id) for item in found.filesystems] == [
        ("jail", 3072, "computefilesystem-e00a"),
        ("controller-state", 100, None),
        ("database-data", 50, None),
        ("mount-data", 1536, None),
    ]
    assert found.filesystem_gib == {"NETWORK_HDD": 100, "NETWORK_SSD": 50, "WEKA": 1536}
    assert found.volume_gib == {}, "state and records lie on file systems"


def test_a_disk_of_another_storage_class_is_not_counted_as_one_of_the_default_kind() -> None:
    faster = with_change(_stack(), "controller.storage_class", "fast")
    assert _needs(faster).volume_gib == {"NETWORK_SSD": 10}, "the database's"
    assert _needs(with_change(faster, "accounting.database.storage_class", "fast")).volume_gib == {}


@pytest.mark.parametrize(
    "accounting",
    [{"enabled": False}, {"database": {"external": {"host": "db.example", "password": {"name": "db", "key": "p"}}}}],
)
def test_without_a_database_of_its_own_a_stack_takes_no_disk_for_one(accounting: dict[str, Any]) -> None:
    assert _needs(_stack() | {"accounting": accounting}).volume_gib == {"NETWORK_SSD": 10}


def test_an_internal_load_balancer_takes_no_public_address() -> None:
    internal = with_change(_stack(), "login.annotations", {"nebius.com/load-balancer-type": "internal"})
    assert [(found.load_balancers, found.public_addresses) for found in (_needs(_stack()), _needs(internal))] == [
        (1, 1),
        (1, 0),
    ]


def test_pools_on_one_fabric_share_its_gpu_cluster() -> None:
    sections = _stack()
    pools = sections["worker_nodes"]
    pools["more"] = pools["default"]
    pools["old"] = pools["default"] | {"gpu_cluster": {"id": "computegpucluster-e00a"}}
    found = _needs(sections)
    assert found.fabrics == {"fabric-6": (H100,)}
    assert found.gpu_clusters == {"computegpucluster-e00a": (H100,)}
