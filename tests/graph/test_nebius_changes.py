"""What a change in the stack file changes of a cloud: no more than it has to, and what never can is known."""

from __future__ import annotations

from typing import Any

import pytest

from cli.program.recording import Registration
from cli.program.values import Resource
from components.clouds.nebius.immutable import FILESYSTEM
from tests import stacks
from tests.graph import diff as graphs
from tests.stacks import with_change

CPU_POOL = {"size": 1, "platform": "cpu-d3", "preset": "16vcpu-64gb"}


class Diff(graphs.Diff):
    """By kind and name: `Mk8sV1NodeGroup slurm-login`."""

    @property
    def machines(self) -> dict[str, list[str]]:
        """What changes of the cloud itself."""
        return {
            name: paths for name, paths in self.changed.items() if name.startswith(("Mk8s", "Compute", "Vpc", "Iam"))
        }

    def _key(self, item: Registration | Resource) -> str:
        return f"{item.type.rsplit(':', 1)[1]} {item.name}"


def change(path: str, value: Any, base: str = "nebius_minimum") -> Diff:
    sections = getattr(stacks, base)()
    return Diff(sections, with_change(sections, path, value))


# Sizes, pools and mounts

GROUP, REPLICAS = "Mk8sV1NodeGroup", {"StatefulSet slurm-pool-default-pods": ["spec.replicas"]}
BIG = {**stacks.nebius_full()["worker_nodes"]["big"], "size": 120}
MOUNTS = ["template.cloudInitUserData", "template.filesystems"]


@pytest.mark.parametrize(
    ("base", "path", "value", "groups", "machines"),
    [
        ("nebius_minimum", "worker_nodes.default.size", 100, ([], []), {}),
        ("nebius_minimum", "worker_nodes.default.size", 101, ([f"{GROUP} slurm-default-1"], []), {}),
        # A pool that comes to rest gives its last machine back.
        (
            "nebius_minimum",
            "worker_nodes.default.size",
            0,
            ([], []),
            {f"{GROUP} slurm-default-0": ["autoscaling.minNodeCount"]},
        ),
        # Groups go from the end, unless they are to be kept.
        ("nebius_full", "worker_nodes.big", BIG, ([], [f"{GROUP} full-big-2"]), {}),
        ("nebius_full", "worker_nodes.big", {**BIG, "autoscaling": {"groups": 3}}, ([], []), {}),
        ("nebius_minimum", "worker_nodes.another", CPU_POOL, ([f"{GROUP} slurm-another-0"], []), {}),
        (
            "nebius_full",
            "worker_nodes.spot.boot_disk",
            {"size": "512Gi"},
            ([], []),
            {f"{GROUP} full-spot-0": ["template.bootDisk.sizeGibibytes"]},
        ),
        # The machines that see a mount, and no others.
        (
            "nebius_minimum",
            "mounts",
            {"data": {"path": "/data"}},
            (["ComputeV1Filesystem slurm-mount-data"], []),
            {f"{GROUP} slurm-default-0": MOUNTS, f"{GROUP} slurm-login": MOUNTS},
        ),
        # Another fabric is another GPU cluster by another name.
        (
            "nebius_minimum",
            "worker_nodes.default.gpu_cluster",
            {"infiniband_fabric": "fabric-7"},
            (["ComputeV1GpuCluster slurm-fabric-7"], ["ComputeV1GpuCluster slurm-fabric-6"]),
            {f"{GROUP} slurm-default-0": ["template.gpuCluster.id"]},
        ),
    ],
)
def test_a_change_touches_no_more_machines_than_it_has_to(
    base: str, path: str, value: Any, groups: tuple[list[str], list[str]], machines: dict[str, list[str]]
) -> None:
    """`groups`: and file systems, those that are added and those that are removed."""
    diff = change(path, value, base)
    of_the_cloud = ("Mk8s", "Compute", "Vpc", "Iam")
    found = ([name for name in names if name.startswith(of_the_cloud)] for names in (diff.added, diff.removed))
    assert tuple(found) == groups
    assert diff.machines == machines
    assert not [name for name in diff.replaced if "V1" in name]
    if path == "worker_nodes.default.size":
        assert {name: paths for name, paths in diff.changed.items() if name not in machines} == REPLICAS
    if path == "worker_nodes.another":
        assert set(diff.changed) == {"ConfigMap slurm-configuration-files", "Job slurm-configuration-active"}


# What can never change


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("controller.filesystem.block_size", "4Ki", {FILESYSTEM: ["blockSizeBytes"]}),
        ("mounts.data.filesystem.type", "VAST", {FILESYSTEM: ["type"]}),
    ],
)
def test_what_can_never_change_makes_exactly_that_resource_anew(
    path: str, value: Any, expected: dict[str, list[str]]
) -> None:
    cloud = {name: paths for name, paths in change(path, value, "nebius_full").replaced.items() if "V1" in name}
    assert {name.split(" ")[0]: paths for name, paths in cloud.items()} == {
        type_.rsplit(":", 1)[1]: paths for type_, paths in expected.items()
    }


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("cloud.kubernetes.version", "1.35"),
        ("cloud.kubernetes.public_endpoint", False),
        ("cloud.system_nodes", {"max_size": 9}),
        ("jail.size", "8Ti"),
        ("jail.filesystem", {"forbid_deletion": False}),
        ("worker_nodes.default.preemptible", True),
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
