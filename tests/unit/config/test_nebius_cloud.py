"""What a stack file for Nebius may say besides its pools: our own roles, Kubernetes, names, file systems, quotas."""

from __future__ import annotations

from math import ceil
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config import load_config
from config.nebius.needs import needs
from tests import stacks
from tests.stacks import with_change
from tests.unit.config.messages import complaints, minimum, only_complaint


@pytest.mark.parametrize(
    ("kubernetes", "where", "reason"),
    [
        ({"node_version": "1.35-nebius-node.75"}, "node_version", "is not of Kubernetes 1.36"),
        ({"node_version": "1.36-nebius-node.0"}, "node_version", "should match pattern"),
        ({"version": "1.3"}, "version", "should match pattern"),
        ({"public_endpoint": False, "allowed_cidrs": ["10.0.0.0/8"]}, "allowed_cidrs", "public_endpoint is false"),
        ({"allowed_cidrs": ["2001:db8::/32"]}, "allowed_cidrs", "is an IPv6 range"),
        ({"allowed_cidrs": ["10.0.0.1/8"]}, "allowed_cidrs.0", "is not an address range"),
        ({"allowed_cidrs": [f"10.0.{i}.0/24" for i in range(101)]}, "allowed_cidrs", "at most 100"),
        ({"service_cidr": "10.0.0.0/11"}, "service_cidr", "from /12 to /28"),
        ({"service_cidr": "10.0.0.0/29"}, "service_cidr", "from /12 to /28"),
        ({"service_cidr": "2001:d00::/28"}, "service_cidr", "IPv4, from /12 to /28"),
        ({"control_plane_size": 2}, "control_plane_size", "one of the allowed values"),
    ],
)
def test_settings_of_kubernetes_that_the_service_refuses_are_refused(
    kubernetes: dict[str, Any], where: str, reason: str
) -> None:
    complaint = only_complaint(("cloud.kubernetes", kubernetes))
    assert complaint.startswith(f"cloud.kubernetes.{where}: ")
    assert reason in complaint


@given(st.integers(1, 32), st.integers(1, 40), st.integers(0, 5000))
def test_names_in_the_cloud_are_never_too_long(prefix: int, pool: int, size: int) -> None:
    name, group = "p" * pool, max(0, ceil(size / 100) - 1)
    item = {"size": size, "platform": "cpu-d3", "preset": "2vcpu-8gb"}
    sections = minimum(("cloud.name", "n" * prefix), ("worker_nodes", {name: item}))
    if len("n" * prefix + f"-{name}-{group}") > 63:
        assert any(line.startswith(f"worker_nodes.{name}: makes the node group ") for line in complaints(sections))
    elif size < 4900:
        assert load_config(sections)


def test_an_existing_file_system_may_have_any_size() -> None:
    changes = (("jail", {"size": "2T", "filesystem": {"id": "computefilesystem-a"}}),)
    assert load_config(minimum(*changes)).jail.filesystem.id == "computefilesystem-a"


def test_more_ssh_keys_than_a_machine_s_start_up_data_can_hold_are_refused() -> None:
    assert only_complaint(("cloud.ssh_keys", [stacks.ALICE_KEY] * 400)).startswith("cloud.ssh_keys: ")
    assert only_complaint(("cloud.ssh_keys", ["hello"])).startswith("cloud.ssh_keys.0: 'hello' is not an SSH public")


@given(st.integers(0, 300), st.sampled_from([0, 1, 7, "10%"]), st.integers(0, 2))
def test_quotas_count_what_the_preview_counts(size: int, surge: int | str, least: int) -> None:
    pool = {"update_strategy": {"max_surge": surge, "max_unavailable": 1}, "autoscaling": {"min_size": least}}
    sections = minimum()
    sections["worker_nodes"]["default"] |= {**pool, "size": size}
    counted = sum((node.count + node.surge) * node.size.gpus for node in needs(load_config(sections)).nodes)
    quota = with_change(sections, "cloud.quotas", {"gpus": {"gpu-h100-sxm": counted}})
    assert load_config(quota)
    if counted:
        quota = with_change(sections, "cloud.quotas", {"gpus": {"gpu-h100-sxm": counted - 1}})
        assert f"takes {counted:,} GPUs" in complaints(quota)[0]
