"""Ranges, firewall, namespaces, what pods are told of the host, and the directory that nobody else may look into."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from local import addresses, configs, namespaces, network, paths
from local.errors import LocalError


def test_the_hosts_kernel_settings_are_covered_and_not_changed() -> None:
    script = namespaces.node_setup_script(Path("/l/nodes/node-0"), Path("/l/ns"))
    assert "mount --bind /run/sysctl/vm.overcommit_memory /proc/sys/vm/overcommit_memory" in script
    assert "> /proc/sys/vm" not in script


def test_the_ranges_can_be_moved_by_the_environment() -> None:
    moved = addresses.from_environment({"SLURMSTACK_RANGE": "172.30.0.0/16"})
    assert (moved.pods_of(1), moved.node(1), moved.dns_service) == ("172.30.65.0/24", "172.30.0.11", "172.30.128.10")


@pytest.mark.parametrize(
    ("value", "words"), [("ten", "is not an IPv4 range"), ("10.0.0.0/24", "another size than /16")]
)
def test_an_unusable_range_is_named_with_its_variable(value: str, words: str) -> None:
    with pytest.raises(LocalError, match=f"SLURMSTACK_RANGE=.*{words}"):
        addresses.from_environment({"SLURMSTACK_RANGE": value})


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


def _chain(**changes: Any) -> dict[str, Any]:
    chain = {"family": "ip", "table": "filter", "name": "FORWARD", "type": "filter", "hook": "forward"}
    return {"chain": {**chain, "policy": "drop", **changes}}


def test_forward_chains_that_drop_or_reject_are_opened_and_nothing_else_is_touched() -> None:
    others = [_chain(hook="input"), _chain(family="ip6"), _chain(table="slurmstack"), {"rule": {}}, {"metainfo": {}}]
    others.append(_chain(policy="accept"))
    docker = _chain()
    firewalld = _chain(
        family="inet", table="firewalld", name="filter_FORWARD", policy="accept"
    )  # it rejects at the end
    assert network.closed_forward_chains([*others, docker, firewalld]) == [
        ("ip", "filter", "FORWARD"),
        ("inet", "firewalld", "filter_FORWARD"),
    ]


@pytest.mark.parametrize("before", [None, 0o755, 0o700])
def test_the_directory_is_closed_to_other_users_of_the_machine(
    before: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURMSTACK_LOCAL_DIR", str(tmp_path / "ours"))
    if before is not None:
        (tmp_path / "ours/volumes").mkdir(parents=True)
        (tmp_path / "ours").chmod(before)

    paths.close()

    assert (tmp_path / "ours").stat().st_mode & 0o777 == 0o700


def test_a_directory_with_files_of_others_is_not_closed_over_their_heads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURMSTACK_LOCAL_DIR", str(tmp_path))
    (tmp_path / "thesis.tex").touch()
    tmp_path.chmod(0o755)

    with pytest.raises(LocalError, match=r"open to all users of this machine, and has thesis\.tex in it"):
        paths.close()

    assert tmp_path.stat().st_mode & 0o777 == 0o755


def test_a_name_server_on_the_hosts_loopback_is_not_handed_to_pods() -> None:
    stub = "# comment\nnameserver 127.0.0.53\noptions edns0\n"
    real = "nameserver 192.168.1.1\nnameserver 2001:db8::1\n"
    assert configs.upstream_dns(stub, real) == ["192.168.1.1", "2001:db8::1"]
    assert configs.upstream_dns(stub) == []


def test_only_host_names_that_mean_something_in_a_pod_are_handed_on() -> None:
    hosts = "127.0.0.1 localhost\n127.0.1.1 laptop\n::1 ip6-localhost\n10.0.0.9 mirror mirror.lan # lab\n\n"
    assert configs.host_names(hosts) == [("10.0.0.9", ["mirror", "mirror.lan"])]


def test_a_changed_name_server_restarts_coredns() -> None:
    def annotation(upstream: str) -> str:
        deployment = configs.system_objects(addresses.from_environment({}), [upstream])[4]
        return str(deployment["spec"]["template"]["metadata"]["annotations"])

    assert annotation("192.0.2.1") != annotation("192.0.2.2")
