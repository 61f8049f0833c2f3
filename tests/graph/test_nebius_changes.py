"""What a change in the stack file changes of a cloud: no more than it has to, and what never can is known."""

from __future__ import annotations

from typing import Any

import pytest

from cli.change.change import compare, of_recording
from cli.program.recording import Registration
from cli.program.values import Unknown, printable
from components.clouds.nebius.immutable import (
    ACCESS_PERMIT,
    ALLOCATION,
    BUCKET,
    CLUSTER,
    FILESYSTEM,
    GPU_CLUSTER,
    IMMUTABLE,
    NODE_GROUP,
)
from tests import stacks
from tests.recordings import record
from tests.stacks import with_change

CPU_POOL = {"size": 1, "platform": "cpu-d3", "preset": "16vcpu-64gb"}


def _key(item: Registration) -> str:
    return f"{item.type.rsplit(':', 1)[1]} {item.name}"


def _flat(value: Any, path: str = "") -> dict[str, Any]:
    if isinstance(value, dict) and value:
        below = [_flat(item, f"{path}.{name}" if path else name) for name, item in value.items()]
        return {key: item for part in below for key, item in part.items()}
    return {path: value}


class Diff:
    """Two runs of the program compared, by URN."""

    def __init__(self, before: dict[str, Any], after: dict[str, Any], *, preview: bool = False) -> None:
        first, second = record(before, stack="test"), record(after, stack="test", preview=preview)
        old, new = first.by_urn(), second.by_urn()
        self.added = sorted(_key(new[urn]) for urn in new.keys() - old.keys())
        self.removed = sorted(_key(old[urn]) for urn in old.keys() - new.keys())
        self.changed: dict[str, list[str]] = {}
        for urn in old.keys() & new.keys():
            left, right = (_flat(printable(side[urn].inputs)) for side in (old, new))
            paths = sorted(path for path in left.keys() | right.keys() if left.get(path) != right.get(path))
            if paths:
                self.changed[_key(new[urn])] = paths
        changes = compare(of_recording(first), of_recording(second))
        self.replaced = {
            f"{change.resource.type.rsplit(':', 1)[1]} {change.resource.name}": [item.path for item in change.because]
            for change in changes
            if change.action == "replace" and not change.cause
        }

    @property
    def machines(self) -> dict[str, list[str]]:
        """What changes of the cloud itself."""
        return {
            name: paths for name, paths in self.changed.items() if name.startswith(("Mk8s", "Compute", "Vpc", "Iam"))
        }


def change(path: str, value: Any, base: str = "nebius_minimum") -> Diff:
    sections = getattr(stacks, base)()
    return Diff(sections, with_change(sections, path, value))


# Sizes


@pytest.mark.parametrize("size", [1, 100])
def test_a_size_changes_one_property_of_one_resource(size: int) -> None:
    diff = change("worker_nodes.default.size", size)
    assert diff.changed == {"StatefulSet slurm-pool-default-pods": ["spec.replicas"]}
    assert not diff.added
    assert not diff.removed


def test_the_hundred_and_first_machine_adds_a_group_and_moves_nothing() -> None:
    diff = change("worker_nodes.default.size", 101)
    assert diff.added == ["Mk8sV1NodeGroup slurm-default-1"]
    assert diff.changed == {"StatefulSet slurm-pool-default-pods": ["spec.replicas"]}
    assert not diff.removed


def test_fewer_hundreds_remove_groups_from_the_end() -> None:
    diff = change("worker_nodes.big.size", 120, "nebius_full")
    assert diff.removed == ["Mk8sV1NodeGroup full-big-2"]
    assert diff.changed == {"StatefulSet slurm-pool-big-pods": ["spec.replicas"]}


def test_a_smaller_pool_keeps_the_groups_that_it_is_told_to() -> None:
    big = stacks.nebius_full()["worker_nodes"]["big"]
    diff = change("worker_nodes.big", {**big, "size": 120, "autoscaling": {"groups": 3}}, "nebius_full")
    assert not diff.removed


def test_a_pool_that_comes_to_rest_gives_its_last_machine_back() -> None:
    diff = change("worker_nodes.default.size", 0)
    assert diff.machines == {"Mk8sV1NodeGroup slurm-default-0": ["autoscaling.minNodeCount"]}
    assert not diff.removed


# Pools


def test_another_pool_touches_no_machine_of_the_others() -> None:
    diff = change("worker_nodes.another", CPU_POOL)
    assert "Mk8sV1NodeGroup slurm-another-0" in diff.added
    assert not diff.removed
    assert not diff.machines
    assert set(diff.changed) == {"ConfigMap slurm-configuration-files", "Job slurm-configuration-active"}


def test_a_pool_that_goes_takes_only_its_own_machines_along() -> None:
    sections = stacks.nebius_full()
    del sections["worker_nodes"]["spot"]
    diff = Diff(stacks.nebius_full(), sections)
    assert diff.removed == [
        "Mk8sV1NodeGroup full-spot-0",
        "StatefulSet slurm-pool-spot-pods",
        "WorkerPool slurm-pool-spot",
    ]
    assert not diff.added
    assert not diff.machines


def test_the_order_of_pools_and_mounts_is_nothing_to_the_cloud() -> None:
    sections = stacks.nebius_full()
    for section in ("worker_nodes", "mounts"):
        sections[section] = dict(reversed(sections[section].items()))
    diff = Diff(stacks.nebius_full(), sections)
    assert not diff.added
    assert not diff.removed
    assert not diff.machines
    assert not [name for name in diff.replaced if "V1" in name]


def test_other_machines_for_a_pool_change_only_its_own_template() -> None:
    diff = change("worker_nodes.spot.boot_disk", {"size": "512Gi"}, "nebius_full")
    assert diff.machines == {"Mk8sV1NodeGroup full-spot-0": ["template.bootDisk.sizeGibibytes"]}
    assert not diff.replaced


def test_a_new_mount_reaches_the_machines_that_see_it_and_no_others() -> None:
    diff = change("mounts", {"data": {"path": "/data"}})
    assert "ComputeV1Filesystem slurm-mount-data" in diff.added
    assert diff.machines == {
        name: ["template.cloudInitUserData", "template.filesystems"]
        for name in ("Mk8sV1NodeGroup slurm-default-0", "Mk8sV1NodeGroup slurm-login")
    }


# What can never change


@pytest.mark.parametrize(
    ("base", "path", "value", "expected"),
    [
        ("nebius_minimum", "cloud.subnet_id", "vpcsubnet-e00other", {CLUSTER: ["controlPlane.subnetId"]}),
        ("nebius_full", "cloud.kubernetes.service_cidr", "10.97.0.0/16", {CLUSTER: ["kubeNetwork.serviceCidrs"]}),
        ("nebius_minimum", "jail.filesystem", {"type": "NETWORK_HDD"}, {FILESYSTEM: ["type"]}),
        ("nebius_minimum", "jail.filesystem", {"block_size": "8Ki"}, {FILESYSTEM: ["blockSizeBytes"]}),
        ("nebius_full", "controller.filesystem.block_size", "4Ki", {FILESYSTEM: ["blockSizeBytes"]}),
        ("nebius_full", "mounts.data.filesystem.type", "VAST", {FILESYSTEM: ["type"]}),
        ("nebius_full", "cloud.backups.bucket", "another-name", {BUCKET: ["name"]}),
        (
            "nebius_full",
            "login.annotations",
            {"nebius.com/load-balancer-type": "internal"},
            {ALLOCATION: ["ipv4Private.subnetId", "ipv4Public.subnetId"]},
        ),
        (
            "nebius_full",
            "images.registry",
            "cr.us-central1.nebius.cloud/e00other/slurmstack",
            {ACCESS_PERMIT: ["resourceId"]},
        ),
    ],
)
def test_what_can_never_change_makes_exactly_that_resource_anew(
    base: str, path: str, value: Any, expected: dict[str, list[str]]
) -> None:
    cloud = {name: paths for name, paths in change(path, value, base).replaced.items() if "V1" in name}
    assert {name.split(" ")[0]: paths for name, paths in cloud.items()} == {
        type_.rsplit(":", 1)[1]: paths for type_, paths in expected.items()
    }
    for type_, paths in expected.items():
        assert set(paths) <= set(IMMUTABLE[type_])


def test_another_fabric_is_another_gpu_cluster_by_another_name() -> None:
    diff = change("worker_nodes.default.gpu_cluster", {"infiniband_fabric": "fabric-7"})
    assert diff.added == ["ComputeV1GpuCluster slurm-fabric-7"]
    assert diff.removed == ["ComputeV1GpuCluster slurm-fabric-6"]
    assert diff.machines == {"Mk8sV1NodeGroup slurm-default-0": ["template.gpuCluster.id"]}


def test_another_project_makes_everything_in_the_cloud_anew() -> None:
    diff = change("cloud.project_id", "project-e00other")
    assert {name.split(" ")[0] for name in diff.replaced} >= {
        type_.rsplit(":", 1)[1] for type_ in (CLUSTER, FILESYSTEM, GPU_CLUSTER)
    }


@pytest.mark.parametrize(
    ("base", "path", "value"),
    [
        ("nebius_minimum", "cloud.subnet_id", "vpcsubnet-e00other"),
        ("nebius_full", "cloud.kubernetes.service_cidr", None),
    ],
)
def test_objects_follow_a_cluster_that_is_made_anew(base: str, path: str, value: Any) -> None:
    changed = change(path, value, base).changed
    assert "clusterIdentifier" in changed["kubernetes kubernetes"], "else Pulumi would take the old objects for the new"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("cloud.kubernetes.version", "1.35"),
        ("cloud.kubernetes.allowed_cidrs", ["203.0.113.0/24"]),
        ("cloud.kubernetes.public_endpoint", False),
        ("cloud.kubernetes.control_plane_size", 1),
        ("cloud.system_nodes", {"max_size": 9}),
        ("cloud.ssh_keys", [stacks.ALICE_KEY]),
        ("cloud.credentials", "sdk"),
        ("cloud.gpu_stack", "operators"),
        ("cloud.backups", {"enabled": True}),
        ("jail.size", "8Ti"),
        ("jail.filesystem", {"forbid_deletion": False}),
        ("worker_nodes.default.preemptible", True),
        ("worker_nodes.default.max_pods", 64),
        ("worker_nodes.default.reservation", {"policy": "FORBID"}),
        ("login", {"service_type": "LoadBalancer"}),
    ],
)
def test_ordinary_changes_make_nothing_of_the_cloud_anew(path: str, value: Any) -> None:
    diff = change(path, value)
    assert diff.changed or diff.added
    assert not [name for name in diff.replaced if "V1" in name]
    assert "clusterIdentifier" not in diff.changed.get("kubernetes kubernetes", [])


# Previews


@pytest.mark.parametrize("base", ["nebius_minimum", "nebius_full"])
def test_a_preview_in_which_nothing_is_known_yet_takes_nothing_for_a_replacement(base: str) -> None:
    sections = getattr(stacks, base)()
    diff = Diff(sections, sections, preview=True)
    assert not diff.added
    assert not diff.removed
    assert "template.filesystems" in " ".join(diff.changed["Mk8sV1NodeGroup " + _any_group(sections)])
    assert not [name for name in diff.replaced if "V1" in name]


def _any_group(sections: dict[str, Any]) -> str:
    return f"{sections['cloud'].get('name', 'slurm')}-login"


def test_in_a_preview_ids_are_unknown_and_names_are_not() -> None:
    recording = record(stacks.nebius_minimum(), stack="test", preview=True)
    for item in recording.of_type(NODE_GROUP):
        assert isinstance(item.inputs["parentId"], Unknown)
        assert item.inputs["name"] == item.name
