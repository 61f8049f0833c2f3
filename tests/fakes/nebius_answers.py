"""A Nebius cloud in which the example stack can be made, as answers of `tests.fakes.nebius`."""

from __future__ import annotations

from typing import Any

import nebius.api.nebius.capacity.v1 as capacity
import nebius.api.nebius.compute.v1 as compute
import nebius.api.nebius.iam.v2 as iam2
import nebius.api.nebius.mk8s.v1 as mk8s
import nebius.api.nebius.quotas.v1 as quotas
from grpc import StatusCode
from nebius.api.nebius.capacity.v1 import ResourceAdvice as Advice
from nebius.api.nebius.common.v1 import ResourceMetadata

from tests.fakes.nebius import Fails, Reply, pages

PROJECT = "project-e00a"
TENANT = "tenant-e00a"
SUBNET = "vpcsubnet-e00a"
REGION = "eu-north1"
H100 = "gpu-h100-sxm"
EIGHT = "8gpu-128vcpu-1600gb"
GIB = 2**30

NOT_FOUND = Fails(code=StatusCode.NOT_FOUND, message="not found")
FORBIDDEN = Fails(code=StatusCode.PERMISSION_DENIED, message="no access")

QUOTAS = {
    "compute.instance.gpu.h100": 16,
    "compute.instance.count": 10,
    "compute.instance.non-gpu.vcpu": 1000,
    "compute.disk.count": 10,
    "compute.disk.size.network-ssd": 10_000 * GIB,
    "compute.filesystem.size.network-ssd": 4096 * GIB,
    "mk8s.cluster.count": 1,
    "vpc.allocation.count": 100,
}
"""Just enough or more for the example: quotas of the tenant."""


def stack(**pool: Any) -> dict[str, Any]:
    """The example: two machines of eight H100 each, on a fabric, and a jail of 2 TiB."""
    default = {
        "size": 2,
        "platform": H100,
        "preset": EIGHT,
        "gpu_cluster": {"infiniband_fabric": "fabric-6"},
    }
    return {
        "cloud": {"kind": "nebius", "project_id": PROJECT, "region": REGION, "subnet_id": SUBNET},
        "worker_nodes": {"default": default | pool},
        "jail": {"size": "2Ti"},
        "login": {"service_type": "LoadBalancer"},
    }


def quota(name: str, limit: int | None, usage: int = 0, region: str = REGION) -> quotas.QuotaAllowance:
    """One quota. Sizes are in bytes."""
    return quotas.QuotaAllowance(
        metadata=ResourceMetadata(name=name),
        spec=quotas.QuotaAllowanceSpec(limit=limit, region=region),
        status=quotas.QuotaAllowanceStatus(usage=usage, unit="byte" if ".size." in name else "count"),
    )


def quota_reply(changes: dict[str, tuple[int, int]] | None = None) -> Reply:
    """Quotas of the tenant, with other limits and usages; the project has none of its own. In pages of three."""
    rows = {name: (limit, 0) for name, limit in QUOTAS.items()} | (changes or {})
    tenant = [quota(name, limit, usage) for name, (limit, usage) in rows.items()]
    tenant.append(quota("compute.instance.gpu.h100", 0, region="us-central1"))
    of_tenant = pages(quotas.ListQuotaAllowancesResponse, tenant, 3)
    of_project = pages(quotas.ListQuotaAllowancesResponse, [quota(name, None) for name in QUOTAS], 3)
    return lambda request: (of_tenant if request.parent_id == TENANT else of_project)(request)


def advice(*, machines: int = 4, reserved: int = 0, fabric: str = "fabric-6", region: str = REGION) -> Advice:
    """So many machines can be had on demand and of reservations, and one that is preemptible."""
    availability = capacity.ResourceAdviceStatus__Availability
    return Advice(
        spec=capacity.ResourceAdviceSpec(
            region=region,
            fabric=fabric,
            compute_instance=capacity.ComputeInstanceDetails(
                platform=H100, preset=capacity.ComputeInstanceDetails__Preset(name=EIGHT)
            ),
        ),
        status=capacity.ResourceAdviceStatus(
            reserved=availability(available=reserved),
            on_demand=availability(available=machines),
            preemptible=availability(available=1),
        ),
    )


def advices(*items: Advice) -> Reply:
    """Advice, in pages of two. The real service refuses a project here."""
    listed = pages(capacity.ListResourceAdviceResponse, list(items), 2)
    return lambda request: listed(request) if request.parent_id == TENANT else FORBIDDEN


def gpu_cluster(fabric: str) -> Reply:
    """The one GPU cluster of the project."""
    made = compute.GpuCluster(
        metadata=ResourceMetadata(id="computegpucluster-e00a"), spec=compute.GpuClusterSpec(infiniband_fabric=fabric)
    )
    return pages(compute.ListGpuClustersResponse, [made], 50)


def group(name: str, preset: str, kind: str, machines: int) -> mk8s.NodeGroup:
    """A node group that has so many machines."""
    return mk8s.NodeGroup(
        metadata=ResourceMetadata(name=name),
        spec=mk8s.NodeGroupSpec(template=mk8s.NodeTemplate(resources=mk8s.ResourcesSpec(platform=kind, preset=preset))),
        status=mk8s.NodeGroupStatus(node_count=machines),
    )


def project(*, region: str = REGION) -> Reply:
    """The project."""
    metadata = ResourceMetadata(id=PROJECT, parent_id=TENANT, name="research")
    return iam2.Project(metadata=metadata, spec=iam2.ProjectSpec(region=region))


def good() -> dict[str, Reply]:
    """Nothing is there yet, and the example stack fits."""
    return {
        "ProjectService/Get": project(),
        "ClusterService/GetByName": NOT_FOUND,
        "QuotaAllowanceService/List": quota_reply(),
        "ResourceAdviceService/List": advices(
            advice(), advice(fabric="fabric-2", machines=0), advice(region="eu-west1")
        ),
    }
