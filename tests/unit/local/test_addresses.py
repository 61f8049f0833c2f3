from __future__ import annotations

import pytest

from local import addresses
from local.errors import LocalError


def test_the_ranges_can_be_moved_by_the_environment() -> None:
    moved = addresses.from_environment({"SLURMSTACK_POD_RANGE": "172.30.0.0/18"})
    assert moved.pods == "172.30.0.0/18"
    assert moved.pods_of(1) == "172.30.1.0/24"
    assert moved.node(1) == "10.197.0.11"


def test_host_control_plane_and_nodes_have_addresses_of_their_own() -> None:
    ranges = addresses.from_environment({})
    found = [ranges.host, ranges.control_plane, *(ranges.node(index) for index in range(8))]
    assert len(set(found)) == len(found)
    assert ranges.api_service == "10.197.128.1"
    assert ranges.dns_service == "10.197.128.10"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"SLURMSTACK_NODE_RANGE": "ten"}, "SLURMSTACK_NODE_RANGE='ten' is not an IPv4 range"),
        ({"SLURMSTACK_NODE_RANGE": "10.0.0.1/24"}, "has host bits set"),
        ({"SLURMSTACK_POD_RANGE": "10.5.0.0/24"}, "too small"),
        ({"SLURMSTACK_POD_RANGE": "10.197.128.0/18"}, "overlaps SLURMSTACK_SERVICE_RANGE"),
    ],
)
def test_an_unusable_range_is_named_with_its_variable(values: dict[str, str], words: str) -> None:
    with pytest.raises(LocalError, match=words.replace("(", r"\(")):
        addresses.from_environment(values)


def test_a_range_that_the_host_already_routes_is_named_with_its_interface() -> None:
    ranges = addresses.from_environment({})
    routes = [
        {"dst": "default", "gateway": "192.168.1.1", "dev": "eth0"},
        {"dst": "192.168.1.0/24", "dev": "eth0"},
        {"dst": "10.0.0.0/8", "dev": "tun0"},
    ]
    found = addresses.overlaps(ranges, routes)
    assert found
    assert all(line.endswith("overlaps 10.0.0.0/8 on tun0") for line in found)


def test_the_clusters_own_routes_are_no_overlap() -> None:
    ranges = addresses.from_environment({})
    routes = [{"dst": ranges.pods_of(0), "gateway": ranges.node(0), "dev": addresses.BRIDGE}]
    assert addresses.overlaps(ranges, routes) == []
