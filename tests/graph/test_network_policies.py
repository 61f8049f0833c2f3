"""Who reaches whom, worked out from the policies: all pairs that the table does not have are closed."""

from __future__ import annotations

from typing import Any

import pytest

from tests import stacks
from tests.graph.objects import recorded
from tests.graph.reachability import Network, network

PORTS = {"ssh": 22, "database": 3306, "slurmctld": 6817, "slurmd": 6818, "slurmdbd": 6819, "rest": 6820, "agent": 8817}
USERS = ("login", "worker")
"""Where users' programs run."""

EXPECTED = {
    # Steps, MPI, X11: ports of their own choice.
    *((source, target, port) for source in (*USERS, "controller") for target in USERS for port in ("other", *PORTS)),
    *((one, "controller", "slurmctld") for one in (*USERS, "slurmdbd", "elastic", "health-watch", "policy", "rest")),
    ("configuration", "controller", "agent"),
    ("policy", "controller", "agent"),
    *((source, "slurmdbd", "slurmdbd") for source in (*USERS, "controller", "policy", "rest")),
    ("slurmdbd", "database", "database"),
    ("policy", "database", "database"),
    ("backup", "database", "database"),
    *((source, "rest", "rest") for source in USERS),
    *(("health-watch", target, "slurmd") for target in USERS),
    # Whoever reaches anything outside at all reaches sshd, which is open to the world.
    *((source, "login", "ssh") for source in ("health-watch", "elastic")),
}
COMPONENTS = {
    "backup", "configuration", "controller", "database", "elastic", "health-watch", "images", "jail", "login", "policy",
    "rest", "slurmdbd", "users", "worker",
}  # fmt: skip

METADATA = ("169.254.169.254", "168.63.129.16", "100.100.100.200", "fd00:ec2::254", "fd20:ce::254")
PRIVATE = ("10.0.0.1", "172.16.3.4", "192.168.1.1", "100.64.0.1", "169.254.20.10", "fd12::1", "fe80::1")
PUBLIC = ("151.101.0.223", "2a04:4e42::223")


def stack(**changes: Any) -> Network:
    return network(recorded(stacks.existing_full(), **changes))


@pytest.fixture(scope="module")
def full() -> Network:
    """A stack with every component."""
    return stack()


def test_every_pod_that_a_stack_makes_is_in_the_table(full: Network) -> None:
    assert set(full.pods) == COMPONENTS


def test_pods_reach_each_other_exactly_as_the_table_says(full: Network) -> None:
    reached = {
        (source, target, name)
        for source in COMPONENTS
        for target in COMPONENTS
        for name, port in {**PORTS, "other": 45678}.items()
        if full.allows(source, target, port)
    }
    assert reached - EXPECTED == set(), "open without need"
    assert EXPECTED - reached == set(), "closed, though needed"


@pytest.mark.parametrize("name", PORTS)
def test_from_outside_there_is_a_way_to_ssh_alone(full: Network, name: str) -> None:
    reached = {target for target in COMPONENTS if full.allows("203.0.113.7", target, PORTS[name])}
    assert reached == ({"login"} if name == "ssh" else set())


def test_users_reach_the_internet_and_no_private_address_and_no_credentials_of_the_cloud(full: Network) -> None:
    for user in USERS:
        assert {address for address in PUBLIC if full.allows(user, address, 443)} == set(PUBLIC)
        ports = (80, 443, 6443, 10250, 32526)
        closed = (*METADATA, *PRIVATE)
        assert [(address, port) for address in closed for port in ports if full.allows(user, address, port)] == []


def test_daemons_that_need_nothing_outside_reach_nothing(full: Network) -> None:
    for component in COMPONENTS - {*USERS, "controller", "elastic", "health-watch", "backup"}:
        assert not any(full.allows(component, address, 443) for address in (*PUBLIC, *PRIVATE, *METADATA))


@pytest.mark.parametrize("component", ["controller", "elastic", "health-watch"])
def test_those_that_follow_objects_of_kubernetes_reach_its_api_wherever_it_is(full: Network, component: str) -> None:
    assert all(full.allows(component, address, port) for address in (*PUBLIC, *PRIVATE) for port in (443, 6443))


def test_names_are_resolved_by_all_that_connect_to_anything(full: Network) -> None:
    asks = {component for component in COMPONENTS if full.allows(component, "10.96.0.10", 53, "UDP")}
    assert COMPONENTS - asks == {"database", "images", "jail", "users"}


@pytest.mark.parametrize(
    ("egress", "opened", "closed"),
    [
        ([], [], [*PUBLIC, *PRIVATE, *METADATA]),
        ([{"to": "10.3.0.0/24"}], ["10.3.0.9"], ["10.3.1.9", *PUBLIC, *METADATA]),
        ([{"to": "internet"}, {"to": "192.168.1.0/24"}], [*PUBLIC, "192.168.1.1"], ["10.0.0.1", *METADATA]),
        ([{"to": "0.0.0.0/0"}, {"to": "::/0"}], [*PUBLIC, *PRIVATE], METADATA),
        ([{"to": "169.254.169.254/32"}], ["169.254.169.254"], ["168.63.129.16", *PUBLIC]),
    ],
)
def test_what_the_stack_file_lists_replaces_the_internet(
    egress: list[dict[str, Any]], opened: list[str], closed: list[str]
) -> None:
    found = stack(network_policies__egress=egress)
    for user in USERS:
        assert [address for address in opened if not found.allows(user, address, 443)] == []
        assert [address for address in closed if found.allows(user, address, 443)] == []
        assert found.allows(user, "controller", 6817)


def test_a_database_outside_is_reached_by_those_that_use_it() -> None:
    external = {"host": "db.example", "port": 3307, "password": {"name": "db", "key": "password"}}
    found = stack(accounting__database={"external": external})
    assert all(found.allows(name, "10.9.9.9", 3307) for name in ("slurmdbd", "policy"))
    assert not any(found.allows(name, "10.9.9.9", 3307) for name in (*USERS, "rest", "configuration"))
    assert not found.allows("slurmdbd", "169.254.169.254", 3307)


def test_a_directory_of_users_is_reached_by_those_that_ask_it() -> None:
    found = stack(sssd={"secret": "ldap"})
    assert all(found.allows(name, "10.9.9.9", 636) for name in (*USERS, "controller", "slurmdbd", "rest"))
    assert not any(found.allows(name, "10.9.9.9", 636) for name in ("database", "policy", "users"))
    assert not found.allows("worker", "169.254.169.254", 389)


@pytest.mark.parametrize(
    ("rest", "outside"),
    [
        ({"source_ranges": ["198.51.100.0/24"]}, ["198.51.100.7"]),
        ({"service_type": "LoadBalancer"}, ["198.51.100.7", "203.0.113.7"]),
        ({"service_type": "LoadBalancer", "source_ranges": ["198.51.100.0/24"]}, ["198.51.100.7"]),
    ],
)
def test_the_rest_api_is_open_to_whom_the_stack_names(rest: dict[str, Any], outside: list[str]) -> None:
    found = stack(rest={"enabled": True, **rest})
    assert [address for address in ("198.51.100.7", "203.0.113.7") if found.allows(address, "rest", 6820)] == outside
    assert found.allows("worker", "rest", 6820)
    assert not found.allows("198.51.100.7", "rest", 22)
