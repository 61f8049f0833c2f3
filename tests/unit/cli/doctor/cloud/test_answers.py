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


STACK = cloud.stack()
NARROW = with_change(STACK, "cloud.kubernetes.service_cidr", "10.0.64.0/20")
SLOW_DISKS = with_change(STACK, "worker_nodes.default.boot_disk", {"type": "NETWORK_HDD"})
STRICT = cloud.stack(reservation={"policy": "STRICT", "ids": ["capacityblockgroup-e00a"]})
AUTO = cloud.stack(reservation={"policy": "AUTO", "ids": ["capacityblockgroup-e00a"]})
GONE = cloud.stack(reservation={"policy": "STRICT", "ids": ["capacityblockgroup-e00b"]})
JOINED = cloud.stack(gpu_cluster={"id": "computegpucluster-e00a"})
ELSEWHERE = cloud.advices(cloud.advice(region="eu-west1"), cloud.advice(fabric="fabric-3"))
LESS = cloud.quota_reply({"compute.filesystem.size.network-ssd": (1024 * GIB, 0)})

ANSWERS: dict[str, list[tuple[Reply, dict[str, Any], str, str, str]]] = {
    "ProjectService/Get": [
        (cloud.NOT_FOUND, STACK, "project", "change", "project-e00a cannot be read: there is no such thing"),
        (cloud.project(region="eu-west1"), STACK, "project", "change", "in eu-west1, of tenant-e00a: cloud.region is"),
        (cloud.project(state="PARKED"), STACK, "project", "change", "is parked"),
    ],
    "SubnetService/Get": [
        (cloud.NOT_FOUND, STACK, "subnet", "change", "there is no subnet vpcsubnet-e00a"),
        (cloud.subnet("10.0.0.0/16"), STACK, "subnet", "change", "cloud.kubernetes.service_cidr"),
        (cloud.subnet("10.0.0.0/16"), NARROW, "subnet", "fine", ""),
        (cloud.subnet("10.0.0.0/24"), NARROW, "subnet", "change", "take a larger subnet"),
    ],
    "AllocationService/ListBySubnet": [
        (cloud.FORBIDDEN, STACK, "subnet", "warning", "if nothing is taken yet"),
    ],
    "PlatformService/List": [
        (cloud.platforms(cloud.CPU), STACK, "machines", "change", "no platform gpu-h100-sxm"),
        (platforms(**{"1gpu": (16, 200, 1)}), STACK, "machines", "change", "8gpu-128vcpu-1600gb; offered: 1gpu"),
        (platforms(**{cloud.EIGHT: (96, 1600, 8)}), STACK, "machines", "change", "has 96 vCPUs"),
    ],
    "QuotaAllowanceService/List": [
        (cloud.quota_reply({"compute.instance.gpu.h100": (16, 8)}), STACK, "quotas", "change", "16 more"),
        (LESS, STACK, "quotas", "change", "2048 GiB more needed, and the tenant's quota has 1024 GiB left of 1024 GiB"),
        (cloud.quota_reply({"compute.instance.count": (5, 0)}), STACK, "quotas", "warning", "autoscaling"),
        (cloud.quota_reply({"compute.instance.gpu.h100": (64, 0)}), SLOW_DISKS, "quotas", "unchecked",
         "compute.disk.size.network-hdd: no such quota is listed"),
    ],
    "ResourceAdviceService/List": [
        (cloud.advices(cloud.advice(machines=1)), STACK, "capacity", "change", "only 1 can be had now"),
        (cloud.advices(cloud.advice(machines=0), cloud.advice(fabric="fabric-2")), STACK, "capacity", "change",
         "there is enough on fabric-2 in eu-north1"),
        (cloud.advices(cloud.advice(fresh=False)), STACK, "capacity", "warning", "out of date"),
        (ELSEWHERE, STACK, "capacity", "warning", "enough on fabric-3 in eu-north1, fabric-6 in eu-west1"),
    ],
    "CapacityBlockGroupService/List": [
        (blocks(), STRICT, "reservation", "fine", "16 more GPUs needed, reservations have 16"),
        (blocks(free=8), STRICT, "reservation", "change", "policy STRICT takes no others"),
        (blocks(free=8), AUTO, "reservation", "warning", "the rest comes out of other capacity"),
        (blocks(platform="gpu-h200-sxm"), STRICT, "reservation", "change", "is for gpu-h200-sxm in eu-north1"),
        (blocks(region="eu-west1"), STRICT, "reservation", "change", "in eu-west1"),
        (blocks(fabric="fabric-2"), STRICT, "reservation", "change", "is on fabric-2"),
        (blocks(active=False), STRICT, "reservation", "change", "is not active"),
        (blocks(), GONE, "reservation", "change", "is not in this tenant"),
    ],
    "GpuClusterService/List": [
        (cloud.gpu_clusters(cloud.gpu_cluster("own", "fabric-6")), JOINED, "capacity", "fine", "on fabric-6"),
        (cloud.gpu_clusters(cloud.gpu_cluster("own", "fabric-2")), JOINED, "capacity", "change", "on fabric-2"),
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
    sections = with_change(STACK, "cloud.kubernetes.service_cidr", "10.0.0.0/20")
    half_free = cloud.allocations(*(f"10.0.{number}.128/25" for number in range(64)))
    pieces = {"SubnetService/Get": cloud.subnet("10.0.0.0/18"), "AllocationService/ListBySubnet": half_free}
    assert worst(doctor(pieces, sections), "subnet").state == "change"
