"""What is said of each answer of the cloud. Real gRPC, real SDK, the service's own messages."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fakes import nebius_answers as cloud
from tests.fakes.nebius import Reply
from tests.fakes.nebius_answers import GIB
from tests.stacks import with_change
from tests.unit.cli.doctor.cloud.nebius_doctor import Doctor, worst


def platforms(**presets: tuple[int, int, int]) -> Reply:
    """Those of a cloud whose one machine with GPUs comes with these presets."""
    return cloud.platforms(cloud.CPU, cloud.platform(cloud.H100, **presets))


def blocks(**fields: Any) -> Reply:
    return cloud.blocks(cloud.block(**{"free": 16, **fields}))


def changed(path: str, value: Any) -> dict[str, Any]:
    return with_change(cloud.stack(), path, value)


STACK = cloud.stack()
NARROW = changed("cloud.kubernetes.service_cidr", "10.0.64.0/20")
STRICT = cloud.stack(reservation={"policy": "STRICT", "ids": ["capacityblockgroup-e00a"]})
AUTO = cloud.stack(reservation={"policy": "AUTO", "ids": ["capacityblockgroup-e00a"]})
GONE = cloud.stack(reservation={"policy": "STRICT", "ids": ["capacityblockgroup-e00b"]})
THERE = changed("jail.filesystem", {"id": "computefilesystem-e00a"})
SLOW_DISKS = changed("worker_nodes.default.boot_disk", {"type": "NETWORK_HDD"})
FABRIC = cloud.stack(gpu_cluster={"id": "computegpucluster-e00a"})
ELSEWHERE = cloud.advices(cloud.advice(region="eu-west1"), cloud.advice(fabric="fabric-3"))
HALF_FREE = cloud.allocations(*(f"10.0.{number}.128/25" for number in range(64)))
"""In pieces: more than enough in sum, but nowhere as many in one range as are needed."""
LESS = cloud.quota_reply({"compute.filesystem.size.network-ssd": (1024 * GIB, 0)})
MATRIX, GROUPS = "NodeGroupService/GetCompatibilityMatrix", "CapacityBlockGroupService/List"

ANSWERS: dict[str, list[tuple[Reply, dict[str, Any], str, str, str]]] = {
    "ProjectService/Get": [
        (cloud.NOT_FOUND, STACK, "project", "change", "there is no project project-e00a"),
        (cloud.project(region="eu-west1"), STACK, "project", "change", "is in eu-west1, but cloud.region is eu-no"),
        (cloud.project(state="PARKED"), STACK, "project", "change", "is parked"),
    ],
    "ClusterService/ListControlPlaneVersions": [
        (cloud.versions("1.35", "1.37"), STACK, "kubernetes", "change", "these: 1.35, 1.37"),
        (cloud.versions("1.36", deprecated=True), STACK, "kubernetes", "warning", "deprecated"),
    ],
    "SubnetService/Get": [
        (cloud.NOT_FOUND, STACK, "subnet", "change", "there is no subnet vpcsubnet-e00a"),
        (cloud.subnet("10.0.0.0/13", project="project-b"), STACK, "subnet", "change", "is in project-b"),
        (cloud.subnet("10.0.0.0/16"), STACK, "subnet", "change", "set cloud.kubernetes.service_cidr to a smaller one"),
        (cloud.subnet("10.0.0.0/16"), NARROW, "subnet", "fine", ""),
        (cloud.subnet("10.0.0.0/24"), NARROW, "subnet", "change", "take a larger subnet"),
    ],
    "AllocationService/ListBySubnet": [
        (cloud.FORBIDDEN, STACK, "subnet", "warning", "if nothing is taken yet"),
    ],
    "PlatformService/List": [
        (cloud.platforms(cloud.CPU), STACK, "machines", "change", "no platform gpu-h100-sxm"),
        (platforms(**{"1gpu": (16, 200, 1)}), STACK, "machines", "change", "8gpu-128vcpu-1600gb; offered: 1gpu"),
        (platforms(**{cloud.EIGHT: (96, 1600, 8)}), STACK, "machines", "warning", "has 96 vCPUs"),
    ],
    MATRIX: [
        (cloud.images("cuda12.8"), STACK, "drivers", "change", "one of these: cuda12.8"),
        (cloud.images("cuda13.0", version="1.35"), STACK, "drivers", "change", "no image"),
        (cloud.images("cuda13.0", platforms=("x",)), STACK, "drivers", "change", "no image"),
    ],
    "QuotaAllowanceService/List": [
        (cloud.quota_reply({"compute.instance.gpu.h100": (16, 8)}), STACK, "quotas", "change", "16 more"),
        (LESS, STACK, "quotas", "change", "2048 GiB more needed, the tenant's quota has 1024 GiB left of 1024 GiB"),
        (cloud.quota_reply({"compute.instance.count": (5, 0)}), STACK, "quotas", "warning", "autoscaling"),
        (cloud.quota_reply({"compute.instance.gpu.h100": (64, 0)}), SLOW_DISKS, "quotas", "unchecked",
         "compute.disk.size.network-hdd: the service lists no such quota"),
    ],
    "ResourceAdviceService/List": [
        (cloud.advices(cloud.advice(machines=1)), STACK, "capacity", "change", "only 1 can be had now"),
        (cloud.advices(cloud.advice(machines=0), cloud.advice(fabric="fabric-2")), STACK, "capacity", "change",
         "there is enough on fabric-2 in eu-north1"),
        (cloud.advices(cloud.advice(fresh=False)), STACK, "capacity", "warning", "out of date"),
        (cloud.advices(cloud.advice(platform="gpu-h200-sxm")), STACK, "fabric", "change",
         "fabric-6 in eu-north1 is for gpu-h200-sxm, not for gpu-h100-sxm"),
        (ELSEWHERE, STACK, "fabric", "change",
         "fabric-6 is in eu-west1, not in eu-north1; fabrics of gpu-h100-sxm in eu-north1: fabric-3"),
        (cloud.advices(cloud.advice(fabric="fabric-3")), STACK, "fabric", "warning", "may be wrong; fabrics"),
    ],
    GROUPS: [
        (blocks(), STRICT, "reservation", "fine", "16 more GPUs needed, reservations have 16"),
        (blocks(free=8), STRICT, "reservation", "change", "policy STRICT takes no others"),
        (blocks(free=8), AUTO, "reservation", "warning", "the rest comes out of other capacity"),
        (blocks(platform="gpu-h200-sxm"), STRICT, "reservation", "change", "is for gpu-h200-sxm"),
        (blocks(region="eu-west1"), STRICT, "reservation", "change", "is in eu-west1"),
        (blocks(fabric="fabric-2"), STRICT, "reservation", "change", "is on fabric-2"),
        (blocks(active=False), STRICT, "reservation", "change", "is not active"),
        (blocks(), GONE, "reservation", "change", "is not in this tenant"),
    ],
    "FilesystemService/Get": [
        (cloud.filesystem(), THERE, "filesystems", "fine", "2048 GiB"),
        (cloud.filesystem(size_gib=1024), THERE, "filesystems", "change", "has 1024 GiB, but jail.size says 2048 GiB"),
        (cloud.filesystem(project="project-b"), THERE, "filesystems", "change", "is in project-b"),
        (cloud.filesystem(state="ERROR"), THERE, "filesystems", "change", "is error"),
        (cloud.filesystem(kind="NETWORK_HDD"), THERE, "filesystems", "warning", "type NETWORK_HDD, not NETWORK_SSD"),
        (cloud.NOT_FOUND, THERE, "filesystems", "change", "there is no file system computefilesystem-e00a (jail)"),
        (cloud.FORBIDDEN, THERE, "filesystems", "unchecked", "may not ask"),
    ],
    "GpuClusterService/Get": [
        (cloud.gpu_cluster(), FABRIC, "fabric", "fine", "fabric-6 in eu-north1 is for gpu-h100-sxm"),
        (cloud.gpu_cluster(project="project-b"), FABRIC, "fabric", "change", "is in project-b"),
        (cloud.gpu_cluster(fabric="fabric-9"), FABRIC, "fabric", "warning", "fabric-9"),
        (cloud.NOT_FOUND, FABRIC, "fabric", "change", "there is no GPU cluster"),
        (cloud.FORBIDDEN, FABRIC, "fabric", "unchecked", "may not ask"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("method", "number"), [(method, number) for method, rows in ANSWERS.items() for number in range(len(rows))]
)
def test_what_would_fail_is_to_change_and_what_may_is_a_warning(doctor: Doctor, method: str, number: int) -> None:
    reply, sections, check, state, said = ANSWERS[method][number]
    found = worst(doctor({method: reply}, sections), check)
    assert (found.state, said in found.message) == (state, True), found


def test_a_free_sum_that_is_in_pieces_is_not_enough(doctor: Doctor) -> None:
    sections = changed("cloud.kubernetes.service_cidr", "10.0.0.0/20")
    pieces = {"SubnetService/Get": cloud.subnet("10.0.0.0/18"), "AllocationService/ListBySubnet": HALF_FREE}
    assert worst(doctor(pieces, sections), "subnet").state == "change"
