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
from tests.unit.config.messages import H100, POOL, complaints, minimum, only_complaint


@pytest.mark.parametrize(
    ("role", "nodes", "reason"),
    [
        ("system", {"platform": "cpu-d4"}, "platform: 'cpu-d4' is not a platform"),
        ("system", {"preset": "16vcpu-65gb"}, "preset: '16vcpu-65gb' is not a preset of cpu-d3"),
        ("login", {"platform": "gpu-h100-sxm", "preset": H100}, "platform: gpu-h100-sxm has GPUs, which nothing would"),
        ("controller", {"platform": "gpu-gb300"}, "platform: gpu-gb300 has GPUs, which nothing would use here"),
        ("system", {"preset": "2vcpu-8gb"}, "preset: 2vcpu-8gb is too small for Kubernetes' own pods; 4 virtual CPUs"),
        ("system", {"min_size": 5, "max_size": 4}, "min_size 5 is more than max_size 4"),
    ],
)
def test_machines_of_our_own_roles_are_checked_too(role: str, nodes: dict[str, Any], reason: str) -> None:
    complaint = only_complaint((f"cloud.{role}_nodes", nodes))
    assert complaint.startswith(f"cloud.{role}_nodes")
    assert reason in complaint


def test_platforms_of_our_own_roles_are_in_the_region() -> None:
    complaint = only_complaint(
        ("cloud.region", "eu-west1"),
        (f"{POOL}.platform", "gpu-h200-sxm"),
        ("cloud.system_nodes", {"platform": "cpu-e2", "preset": "16vcpu-64gb"}),
    )
    assert complaint == "cloud.system_nodes.platform: cpu-e2 is not in eu-west1, but in eu-north1; eu-west1 has cpu-d3"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ((("controller.cpu", "8"),), "cloud.controller_nodes.preset: 8vcpu-32gb is too small for a pod with 8 CPU"),
        ((("controller.memory", "40Gi"),), "cloud.controller_nodes.preset: 8vcpu-32gb is too small for a pod"),
        ((("login.memory", "64Gi"),), "cloud.login_nodes.preset: 16vcpu-64gb is too small for a pod"),
        (
            (("login.size", 5), ("login.cpu", "8"), ("cloud.login_nodes", {"max_size": 4})),
            "cloud.login_nodes.max_size: 4 machines of 16vcpu-64gb have room for 4 pods of 8 CPU and 128Mi",
        ),
    ],
)
def test_a_pod_that_fits_no_machine_is_refused(changes: tuple[tuple[str, Any], ...], reason: str) -> None:
    assert only_complaint(*changes).startswith(reason)


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


def test_a_long_namespace_needs_a_short_name_in_the_cloud() -> None:
    complaint = only_complaint(("cluster.namespace", "n" * 63))
    assert complaint.startswith("cluster.namespace: makes names such as ")
    assert complaint.endswith("set a short cloud.name")
    assert load_config(minimum(("cluster.namespace", "n" * 63), ("cloud.name", "short")))


@pytest.mark.parametrize("length", [31, 32])
def test_a_mount_s_name_fits_into_the_tag_by_which_machines_mount_it(length: int) -> None:
    sections = minimum(("mounts", {"m" * length: {"path": "/data"}}))
    if length > 31:
        (complaint,) = complaints(sections)
        assert "makes the mount tag " in complaint
    else:
        assert load_config(sections)


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        ("jail.size", "1.0001Ti", "jail.size: 1.0001Ti is no whole number of GiB, in which the cloud counts; 1025Gi?"),
        ("jail.size", "2T", "jail.size: 2T is no whole number of GiB"),
        ("mounts.data", {"path": "/data", "size": "100G"}, "mounts.data.size: 100G is no whole number of GiB"),
        ("controller", {"storage": "10G", "filesystem": {}}, "controller.storage: 10G is no whole number of GiB"),
        ("jail.storage_class", "shared", "jail.storage_class: is not used here, where the volume is a shared file"),
        ("mounts.data", {"path": "/data", "storage_class": "x"}, "mounts.data.storage_class: is not used here"),
        (
            "controller",
            {"storage_class": "x", "filesystem": {}},
            "controller.storage_class: is not used with controller.filesystem; remove one of them",
        ),
        (
            "accounting.database",
            {"storage": "10G", "filesystem": {}},
            "accounting.database.storage: 10G is no whole number of GiB",
        ),
        (
            "accounting.database",
            {"storage_class": "x", "filesystem": {}},
            "accounting.database.storage_class: is not used with accounting.database.filesystem; remove one of them",
        ),
        (
            "jail.filesystem",
            {"id": "computefilesystem-a", "type": "NETWORK_SSD"},
            "jail.filesystem.type: cannot be chosen for a file system that exists already",
        ),
        ("jail.filesystem", {"block_size": "3Ki"}, "jail.filesystem.block_size: '3Ki' is not a block size"),
        ("jail.filesystem", {"type": "WEKA", "block_size": "4Ki"}, "jail.filesystem: block_size cannot be chosen for"),
    ],
)
def test_a_file_system_that_cannot_be_made_is_refused(path: str, value: Any, reason: str) -> None:
    assert only_complaint((path, value)).startswith(reason)


def test_one_file_system_cannot_be_two_volumes() -> None:
    existing = {"id": "computefilesystem-a"}
    changes = (("jail.filesystem", existing), ("mounts.data", {"path": "/data", "filesystem": existing}))
    assert only_complaint(*changes) == (
        "mounts.data.filesystem.id: computefilesystem-a is the file system of jail already; a machine can attach it "
        "only once"
    )


def test_an_existing_file_system_may_have_any_size() -> None:
    changes = (("jail", {"size": "2T", "filesystem": {"id": "computefilesystem-a"}}),)
    assert load_config(minimum(*changes)).jail.filesystem.id == "computefilesystem-a"


def test_a_bucket_without_backups_is_refused() -> None:
    complaint = only_complaint(("cloud.backups", {"bucket": "my-backups"}))
    assert complaint == "cloud.backups.bucket: names a bucket, but backups.enabled is not true; set it"


def test_a_bucket_whose_name_would_be_too_long_must_be_named() -> None:
    long = ("cloud.project_id", "project-" + "e" * 50)
    complaint = only_complaint(long, ("cloud.backups", {"enabled": True}))
    assert complaint.startswith("cloud.backups.bucket: must be set: 'slurm-backups-eee")
    assert load_config(minimum(long, ("cloud.backups", {"enabled": True, "bucket": "my-backups"})))


def test_more_ssh_keys_than_a_machine_s_start_up_data_can_hold_are_refused() -> None:
    assert only_complaint(("cloud.ssh_keys", [stacks.ALICE_KEY] * 400)).startswith("cloud.ssh_keys: ")
    assert only_complaint(("cloud.ssh_keys", ["hello"])).startswith("cloud.ssh_keys.0: 'hello' is not an SSH public")


@pytest.mark.parametrize(
    ("quotas", "complaint"),
    [
        (
            {"gpus": {"gpu-h100-sxm": 8}},
            "cloud.quotas.gpus.gpu-h100-sxm: the stack takes 16 GPUs (default 16) and the quota is 8; ask for more",
        ),
        ({"gpus": {"gpu-h100": 8}}, "cloud.quotas.gpus.gpu-h100: 'gpu-h100' is not a platform"),
        ({"nodes": 7}, "cloud.quotas.nodes: the stack takes 8 machines (default 2, system_nodes 3, controller_nodes 1"),
        ({"vcpus": 50}, "cloud.quotas.vcpus: the stack takes 88 virtual CPUs (system_nodes 48, controller_nodes 8, "),
        ({"disk_size": "1Ti"}, None),
        ({"disk_size": "1023Gi"}, "cloud.quotas.disk_size: the stack takes 1,024 GiB of boot disks ("),
        ({"filesystem_size": "10Gi"}, "cloud.quotas.filesystem_size: the stack takes 20 GiB of file systems (jail 20)"),
        ({"gpus": {"gpu-h100-sxm": 16, "gpu-h200-sxm": 0}, "nodes": 8, "vcpus": 88, "filesystem_size": "20Gi"}, None),
    ],
)
def test_more_than_a_stated_quota_is_refused(quotas: dict[str, Any], complaint: str | None) -> None:
    if complaint is None:
        assert load_config(minimum(("cloud.quotas", quotas)))
    else:
        assert only_complaint(("cloud.quotas", quotas)).startswith(complaint)


def test_reserved_gpus_do_not_count_against_the_quota_and_those_of_an_update_do() -> None:
    quota = ("cloud.quotas", {"gpus": {"gpu-h100-sxm": 16}})
    surge = (f"{POOL}.update_strategy", {"max_surge": "50%"})
    assert "takes 24 GPUs" in only_complaint(quota, surge)
    assert load_config(minimum(quota, surge, (f"{POOL}.reservation", {"policy": "STRICT"})))


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
