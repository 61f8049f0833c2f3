"""`slurmstack doctor cloud`: whether there is enough of everything, and what is there already. Real gRPC, real SDK."""

from __future__ import annotations

from typing import Any

import nebius.api.nebius.compute.v1 as compute
import nebius.api.nebius.mk8s.v1 as mk8s
import pytest
from nebius.api.nebius.common.v1 import ResourceMetadata

from tests.fakes import nebius_answers as cloud
from tests.fakes.nebius import Reply
from tests.stacks import with_change
from tests.unit.cli.doctor.cloud.nebius_doctor import Doctor, only, worst


def test_a_quota_that_the_service_does_not_list_is_not_called_enough(doctor: Doctor) -> None:
    none = cloud.quota_reply({"compute.instance.gpu.h100": (64, 0)})
    sections = with_change(cloud.stack(), "worker_nodes.default.boot_disk", {"type": "NETWORK_HDD"})
    found = doctor({"QuotaAllowanceService/List": none}, sections)
    assert "compute.disk.size.network-hdd: the service lists no such quota" in worst(found, "quotas").message
    assert worst(found, "quotas").state == "unchecked"


def test_autoscaling_beyond_a_quota_is_a_warning(doctor: Doctor) -> None:
    five = cloud.quota_reply({"compute.instance.count": (5, 0)})
    found = worst(doctor({"QuotaAllowanceService/List": five}), "quotas")
    assert (found.state, "autoscaling" in found.message) == ("warning", True)


def test_the_projects_own_quota_binds_too(doctor: Doctor) -> None:
    tenant = cloud.quota_reply()

    def reply(request: Any) -> Any:
        answer = tenant(request)
        if request.parent_id == cloud.PROJECT:
            for item in answer.items:
                item.spec.limit = 12 if item.metadata.name == "compute.instance.gpu.h100" else None
        return answer

    found = worst(doctor({"QuotaAllowanceService/List": reply}), "quotas")
    assert found.state == "change"
    assert "the project's quota has 12 left of 12" in found.message


def test_a_subnet_too_small_says_what_would_help(doctor: Doctor) -> None:
    small = {"SubnetService/Get": cloud.subnet("10.0.0.0/16")}
    found = only(doctor(small), "subnet")
    assert found.state == "change"
    assert "set cloud.kubernetes.service_cidr to a smaller one" in found.message
    narrow = with_change(cloud.stack(), "cloud.kubernetes.service_cidr", "10.0.64.0/20")
    assert only(doctor(small, narrow), "subnet").state == "fine"
    tiny = only(doctor({"SubnetService/Get": cloud.subnet("10.0.0.0/24")}, narrow), "subnet")
    assert "take a larger subnet" in tiny.message


def test_a_free_sum_that_is_in_pieces_is_not_enough(doctor: Doctor) -> None:
    sections = with_change(cloud.stack(), "cloud.kubernetes.service_cidr", "10.0.0.0/20")
    pieces = {
        "SubnetService/Get": cloud.subnet("10.0.0.0/18"),
        # Half of the addresses are free, more than enough in sum, but nowhere as many in one range as are needed.
        "AllocationService/ListBySubnet": cloud.allocations(*(f"10.0.{number}.128/25" for number in range(64))),
    }
    assert only(doctor(pieces, sections), "subnet").state == "change"


def test_what_is_there_already_is_not_needed_once_more(doctor: Doctor) -> None:
    groups = [
        cloud.group("slurm-default-0", cloud.EIGHT, cloud.H100, 2),
        cloud.group("slurm-system", "16vcpu-64gb", "cpu-d3", 1),
        cloud.group("slurm-controller", "8vcpu-32gb", "cpu-d3", 1),
        cloud.group("slurm-login", "16vcpu-64gb", "cpu-d3", 1),
    ]
    used = {name: (limit, limit) for name, limit in cloud.QUOTAS.items()}
    there = {
        "ClusterService/GetByName": mk8s.Cluster(metadata=ResourceMetadata(id="mk8scluster-e00a", name="slurm")),
        "NodeGroupService/List": mk8s.ListNodeGroupsResponse(items=groups),
        "FilesystemService/List": compute.ListFilesystemsResponse(items=[cloud.filesystem(name="slurm-jail")]),
        "GpuClusterService/List": compute.ListGpuClustersResponse(items=[cloud.gpu_cluster(name="slurm-fabric-6")]),
        "QuotaAllowanceService/List": cloud.quota_reply(used),
        "ResourceAdviceService/List": cloud.advices(cloud.advice(machines=0)),
    }
    found = doctor(there)
    assert "0 of 5 machines are still to be made" in only(found, "present").message
    assert not [item for item in found if item.state == "change"]
    more = doctor(there, cloud.stack(size=3))
    short = [item.message for item in more if item.check == "quotas" and item.state == "change"]
    assert any("compute.instance.gpu.h100 in eu-north1: 8 more needed" in message for message in short)
    assert not any("filesystem" in message or "mk8s" in message for message in short)
    assert "1 x gpu-h100-sxm" in only(more, "capacity").message
    larger = doctor(there, with_change(cloud.stack(), "jail.size", "3Ti"))
    assert "1024 GiB more needed" in worst(larger, "quotas").message


@pytest.mark.parametrize(
    ("block", "policy", "state", "said"),
    [
        (cloud.block(free=16), "STRICT", "fine", "16 more GPUs needed, reservations have 16"),
        (cloud.block(free=8), "STRICT", "change", "policy STRICT takes no others"),
        (cloud.block(free=8), "AUTO", "warning", "the rest comes out of other capacity"),
        (cloud.block(free=16, platform="gpu-h200-sxm"), "STRICT", "change", "is for gpu-h200-sxm"),
        (cloud.block(free=16, region="eu-west1"), "STRICT", "change", "is in eu-west1"),
        (cloud.block(free=16, fabric="fabric-2"), "STRICT", "change", "is on fabric-2"),
        (cloud.block(free=16, active=False), "STRICT", "change", "is not active"),
    ],
)
def test_a_reservation_must_fit_the_pool(doctor: Doctor, block: Any, policy: str, state: str, said: str) -> None:
    sections = cloud.stack(reservation={"policy": policy, "ids": ["capacityblockgroup-e00a"]})
    found = worst(doctor({"CapacityBlockGroupService/List": cloud.blocks(block)}, sections), "reservation")
    assert found.state == state
    assert said in found.message


def test_a_reservation_that_is_not_there_is_to_change(doctor: Doctor) -> None:
    sections = cloud.stack(reservation={"policy": "STRICT", "ids": ["capacityblockgroup-e00b"]})
    assert "is not in this tenant" in only(doctor(None, sections), "reservation").message


def test_reserved_gpus_need_no_quota_and_are_not_given_to_two_pools(doctor: Doctor) -> None:
    none_left = cloud.quota_reply({"compute.instance.gpu.h100": (0, 0), "compute.disk.count": (20, 0)})
    replies = {
        "QuotaAllowanceService/List": none_left,
        "CapacityBlockGroupService/List": cloud.blocks(cloud.block(free=16)),
    }
    assert worst(doctor(replies), "quotas").state != "change"
    sections = cloud.stack()
    sections["worker_nodes"]["more"] = sections["worker_nodes"]["default"]
    assert "16 more needed" in worst(doctor(replies, sections), "quotas").message


def test_preemptible_machines_have_a_quota_and_capacity_of_their_own(doctor: Doctor) -> None:
    replies = {
        "QuotaAllowanceService/List": cloud.quota_reply(
            {"compute.instance.gpu.h100": (0, 0), "compute.instance.preemptible.count": (1, 0)}
        )
    }
    found = doctor(replies, cloud.stack(preemptible=True))
    short = [item.message for item in found if item.check == "quotas" and item.state == "change"]
    assert [message.split(" in ")[0] for message in short] == ["compute.instance.preemptible.count"]
    assert "preemptible: only 1 can be had now" in only(found, "capacity").message


@pytest.mark.parametrize(
    ("reply", "state", "said"),
    [
        (cloud.filesystem(), "fine", "2048 GiB"),
        (cloud.filesystem(size_gib=1024), "change", "has 1024 GiB, but jail.size says 2048 GiB"),
        (cloud.filesystem(project="project-b"), "change", "is in project-b"),
        (cloud.filesystem(state="ERROR"), "change", "is error"),
        (cloud.filesystem(kind="NETWORK_HDD"), "warning", "type NETWORK_HDD, not NETWORK_SSD"),
        (cloud.NOT_FOUND, "change", "there is no file system computefilesystem-e00a (jail)"),
        (cloud.FORBIDDEN, "unchecked", "may not ask"),
    ],
)
def test_an_existing_file_system_must_be_there_and_large_enough(
    doctor: Doctor, reply: Reply, state: str, said: str
) -> None:
    sections = with_change(cloud.stack(), "jail.filesystem", {"id": "computefilesystem-e00a"})
    found = only(doctor({"FilesystemService/Get": reply}, sections), "filesystems")
    assert found.state == state
    assert said in found.message


@pytest.mark.parametrize(
    ("reply", "state", "said"),
    [
        (cloud.gpu_cluster(), "fine", "fabric-6 in eu-north1 is for gpu-h100-sxm"),
        (cloud.gpu_cluster(project="project-b"), "change", "is in project-b"),
        (cloud.gpu_cluster(fabric="fabric-9"), "warning", "fabric-9"),
        (cloud.NOT_FOUND, "change", "there is no GPU cluster"),
        (cloud.FORBIDDEN, "unchecked", "may not ask"),
    ],
)
def test_an_existing_gpu_cluster_must_be_there(doctor: Doctor, reply: Reply, state: str, said: str) -> None:
    sections = cloud.stack(gpu_cluster={"id": "computegpucluster-e00a"})
    found = worst(doctor({"GpuClusterService/Get": reply}, sections), "fabric")
    assert found.state == state
    assert said in found.message
