"""Ranges, firewall, namespaces, and the directory that nobody else may look into."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from local import addresses, firewall, namespaces, paths
from local.errors import LocalError


def test_the_hosts_kernel_settings_are_covered_and_not_changed() -> None:
    script = namespaces.node_setup_script(Path("/l/nodes/node-0"), Path("/l/ns"))
    assert "mount --bind /run/sysctl/vm.overcommit_memory /proc/sys/vm/overcommit_memory" in script
    assert "> /proc/sys/vm" not in script


def test_the_ranges_can_be_moved_by_the_environment() -> None:
    moved = addresses.from_environment({"SLURMSTACK_POD_RANGE": "172.30.0.0/18"})
    assert moved.pods == "172.30.0.0/18"
    assert moved.pods_of(1) == "172.30.1.0/24"
    assert moved.node(1) == "10.197.0.11"


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
    assert firewall.closed_forward_chains([*others, docker, firewalld]) == [
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
