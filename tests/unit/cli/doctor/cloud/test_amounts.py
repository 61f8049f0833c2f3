"""`slurmstack doctor cloud`: whether there is enough of everything, and what is there already. Real gRPC, real SDK."""

from __future__ import annotations

from typing import Any

import nebius.api.nebius.compute.v1 as compute
import nebius.api.nebius.mk8s.v1 as mk8s
from nebius.api.nebius.common.v1 import ResourceMetadata

from tests.fakes import nebius_answers as cloud
from tests.stacks import with_change
from tests.unit.cli.doctor.cloud.nebius_doctor import Doctor, only, worst


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
        "FilesystemService/List": compute.ListFilesystemsResponse(items=[cloud.filesystem("slurm-jail")]),
        "GpuClusterService/List": cloud.gpu_clusters(cloud.gpu_cluster("slurm-fabric-6")),
        "QuotaAllowanceService/List": cloud.quota_reply(used),
        "ResourceAdviceService/List": cloud.advices(cloud.advice(machines=0)),
    }
    found = doctor(there)
    assert "0 of 5 machines are still to be made" in only(found, "present").message
    assert not [item for item in found if item.state == "change"]
    more = doctor(there, cloud.stack(size=3))
    short = [item.message for item in more if item.check == "quotas" and item.state == "change"]
    assert any("compute.instance.gpu.h100: 8 more needed" in message for message in short)
    assert not any("filesystem" in message or "mk8s" in message for message in short)
    assert "1 x gpu-h100-sxm" in only(more, "capacity").message
    larger = doctor(there, with_change(cloud.stack(), "jail.size", "3Ti"))
    assert "1024 GiB more needed" in worst(larger, "quotas").message


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
    assert [message.split(":")[0] for message in short] == ["compute.instance.preemptible.count"]
    assert "preemptible: only 1 can be had now" in only(found, "capacity").message
