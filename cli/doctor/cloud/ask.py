"""The questions themselves: one method each, over the official SDK."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any, Protocol, TypeVar

import nebius.api.nebius.capacity.v1 as capacity
import nebius.api.nebius.compute.v1 as compute
import nebius.api.nebius.iam.v1 as iam
import nebius.api.nebius.iam.v2 as iam2
import nebius.api.nebius.mk8s.v1 as mk8s
import nebius.api.nebius.quotas.v1 as quotas
import nebius.api.nebius.vpc.v1 as vpc
from nebius.api.nebius.common.v1 import GetByNameRequest
from nebius.base.error import SDKError
from nebius.sdk import SDK

from cli.access.nebius_sdk import AUTH_OPTIONS
from cli.doctor.cloud.answers import (
    Advice,
    Answer,
    Availability,
    CapacityBlock,
    Identity,
    Image,
    KubernetesVersion,
    LiveFilesystem,
    LiveGpuCluster,
    LiveGroup,
    LivePlatform,
    LivePreset,
    Present,
    Project,
    Quota,
    Subnet,
    Unanswered,
)

CALL_TIMEOUT_S = 15.0
"""Seconds for one question, its second try included."""

PAGE_SIZE = 200
"""Items of one page: the most that all lists allow."""

MAX_PAGES = 100
"""A list that never ends is a fault of the service."""

GIBIBYTE = 2**30

T = TypeVar("T")
R = TypeVar("R")


class _Page(Protocol):
    @property
    def items(self) -> Iterable[Any]: ...
    @property
    def next_page_token(self) -> str: ...


class Cloud:
    """What can be asked. No method raises because of what the service does: then the answer is `Unanswered`."""

    def __init__(self, sdk: SDK, *, call_timeout: float = CALL_TIMEOUT_S) -> None:
        self._sdk = sdk
        self._options: dict[str, Any] = {
            "timeout": call_timeout,
            "per_retry_timeout": call_timeout / 2,
            "auth_timeout": call_timeout,
            "auth_options": AUTH_OPTIONS,
            "retries": 2,
        }

    async def identity(self) -> Answer[Identity]:
        """Whose credentials these are."""
        return await _answered(self._sdk.whoami(**self._options), _identity)

    async def project(self, project_id: str) -> Answer[Project]:
        """The project, its tenant and its region."""
        client = iam2.ProjectServiceClient(self._sdk)
        return await _answered(client.get(iam2.GetProjectRequest(id=project_id), **self._options), _project)

    async def versions(self) -> Answer[tuple[KubernetesVersion, ...]]:
        """Kubernetes versions that new clusters can have."""
        client = mk8s.ClusterServiceClient(self._sdk)
        request = mk8s.ListClusterControlPlaneVersionsRequest()
        return await _answered(client.list_control_plane_versions(request, **self._options), _versions)

    async def platforms(self, project_id: str) -> Answer[dict[str, LivePlatform]]:
        """Platforms of the project's region, by name."""
        client = compute.PlatformServiceClient(self._sdk)
        found = await self._all(
            client.list,
            partial(compute.ListPlatformsRequest, parent_id=project_id),
            lambda item: (item.metadata.name, _platform(item)),
        )
        return found if isinstance(found, Unanswered) else dict(found)

    async def images(self, version: str, platform: str) -> Answer[tuple[Image, ...]]:
        """System images of Managed Kubernetes for a version and a platform."""
        client = mk8s.NodeGroupServiceClient(self._sdk)
        request = mk8s.GetNodeGroupCompatibilityMatrixRequest(cluster_kubernetes_version=version, platform=platform)
        return await _answered(client.get_compatibility_matrix(request, **self._options), _images)

    async def subnet(self, subnet_id: str) -> Answer[Subnet]:
        """The subnet and its address ranges."""
        client = vpc.SubnetServiceClient(self._sdk)
        return await _answered(client.get(vpc.GetSubnetRequest(id=subnet_id), **self._options), _subnet)

    async def taken(self, subnet_id: str) -> Answer[tuple[str, ...]]:
        """Ranges of addresses that are taken, public ones too."""
        client = vpc.AllocationServiceClient(self._sdk)
        found = await self._all(
            client.list_by_subnet,
            partial(vpc.ListAllocationsBySubnetRequest, subnet_id=subnet_id),
            lambda item: str(item.status.details.allocated_cidr),
        )
        return found if isinstance(found, Unanswered) else tuple(cidr for cidr in found if cidr)

    async def quotas(self, container_id: str) -> Answer[tuple[Quota, ...]]:
        """Quotas of a tenant or a project."""
        client = quotas.QuotaAllowanceServiceClient(self._sdk)
        return await self._all(client.list, partial(quotas.ListQuotaAllowancesRequest, parent_id=container_id), _quota)

    async def blocks(self, tenant_id: str) -> Answer[tuple[CapacityBlock, ...]]:
        """Reserved capacity of a tenant."""
        client = capacity.CapacityBlockGroupServiceClient(self._sdk)
        return await self._all(
            client.list, partial(capacity.ListCapacityBlockGroupsRequest, parent_id=tenant_id), _block
        )

    async def advice(self, tenant_id: str) -> Answer[tuple[Advice, ...]]:
        """What a tenant could have now, by region, fabric and preset. The service takes no project here."""
        client = capacity.ResourceAdviceServiceClient(self._sdk)
        return await self._all(client.list, partial(capacity.ListResourceAdviceRequest, parent_id=tenant_id), _advice)

    async def filesystem(self, filesystem_id: str) -> Answer[LiveFilesystem]:
        """A file system by its id."""
        client = compute.FilesystemServiceClient(self._sdk)
        return await _answered(client.get(compute.GetFilesystemRequest(id=filesystem_id), **self._options), _filesystem)

    async def gpu_cluster(self, cluster_id: str) -> Answer[LiveGpuCluster]:
        """A GPU cluster by its id."""
        client = compute.GpuClusterServiceClient(self._sdk)
        return await _answered(client.get(compute.GetGpuClusterRequest(id=cluster_id), **self._options), _gpu_cluster)

    async def present(self, project_id: str, cluster_name: str) -> Answer[Present]:
        """What of the stack is there already. Without a cluster of this name: its file systems at most."""
        disks = compute.FilesystemServiceClient(self._sdk)
        filesystems = await self._all(
            disks.list, partial(compute.ListFilesystemsRequest, parent_id=project_id), _filesystem
        )
        if isinstance(filesystems, Unanswered):
            return filesystems
        fabrics = compute.GpuClusterServiceClient(self._sdk)
        gpu_clusters = await self._all(
            fabrics.list, partial(compute.ListGpuClustersRequest, parent_id=project_id), _gpu_cluster
        )
        if isinstance(gpu_clusters, Unanswered):
            return gpu_clusters
        clusters = mk8s.ClusterServiceClient(self._sdk)
        by_name = GetByNameRequest(parent_id=project_id, name=cluster_name)
        cluster = await _answered(clusters.get_by_name(by_name, **self._options), lambda found: str(found.metadata.id))
        if isinstance(cluster, Unanswered):
            if not cluster.missing:
                return cluster
            return Present(filesystems=filesystems, gpu_clusters=gpu_clusters)
        client = mk8s.NodeGroupServiceClient(self._sdk)
        groups = await self._all(client.list, partial(mk8s.ListNodeGroupsRequest, parent_id=cluster), _group)
        if isinstance(groups, Unanswered):
            return groups
        return Present(cluster=True, groups=groups, filesystems=filesystems, gpu_clusters=gpu_clusters)

    async def _all(
        self, ask: Callable[..., Awaitable[_Page]], request: Callable[..., Any], read: Callable[[Any], R]
    ) -> Answer[tuple[R, ...]]:
        """Every item of a list, page by page. `request`: makes one, but for the page."""
        items: list[R] = []
        token = ""
        for _ in range(MAX_PAGES):
            wanted = request(page_size=PAGE_SIZE, page_token=token)
            answer = await _answered(ask(wanted, **self._options), lambda got: got)
            if isinstance(answer, Unanswered):
                return answer
            items.extend(read(item) for item in answer.items)
            token = answer.next_page_token
            if not token:
                return tuple(items)
        return Unanswered(reason=f"the service's list has more than {MAX_PAGES} pages")


async def _answered(request: Awaitable[T], read: Callable[[T], R]) -> Answer[R]:
    try:
        return read(await request)
    except TimeoutError:
        return Unanswered(reason="the service did not answer in time", code="DEADLINE_EXCEEDED")
    except (SDKError, OSError) as error:
        return _unanswered(error)


def _unanswered(error: Exception) -> Unanswered:
    status = getattr(error, "status", None)
    code = str(getattr(getattr(status, "code", None), "name", ""))
    said = " ".join(str(getattr(status, "message", None) or error).split()).rstrip(".") or type(error).__name__
    told = {
        "DEADLINE_EXCEEDED": "the service did not answer in time",
        "UNAVAILABLE": f"the service cannot be reached ({said})",
        "UNAUTHENTICATED": f"the credentials were refused ({said})",
        "PERMISSION_DENIED": f"these credentials may not ask that ({said})",
        "UNIMPLEMENTED": "the service does not know this question",
        "NOT_FOUND": f"there is no such thing ({said})",
    }
    return Unanswered(reason=told.get(code, f"{code}: {said}" if code else said), code=code)


def _identity(answer: iam.GetProfileResponse) -> Identity:
    if answer.user_profile is not None:
        attributes = answer.user_profile.attributes
        name = (attributes.email or attributes.name or "") if attributes is not None else ""
        return Identity(
            name=f"user {name or answer.user_profile.id}",
            active=answer.user_profile.user_account_state.name in {"ACTIVE", "STATE_UNSPECIFIED"},
        )
    if answer.service_account_profile is not None:
        info = answer.service_account_profile.info
        return Identity(name=f"service account {info.metadata.name or info.metadata.id}", active=info.status.active)
    return Identity(name="nobody", anonymous=True)


def _project(answer: iam2.Project) -> Project:
    return Project(
        name=answer.metadata.name,
        tenant=answer.metadata.parent_id,
        region=answer.spec.region,
        state=answer.status.project_state.name,
    )


def _versions(answer: mk8s.ListClusterControlPlaneVersionsResponse) -> tuple[KubernetesVersion, ...]:
    return tuple(
        KubernetesVersion(version=item.version, deprecated=item.deprecated, restricted=item.restricted)
        for item in answer.items
    )


def _platform(item: compute.Platform) -> LivePlatform:
    return LivePlatform(
        presets={
            preset.name: LivePreset(
                vcpus=preset.resources.vcpu_count,
                memory_gib=preset.resources.memory_gibibytes,
                gpus=preset.resources.gpu_count,
                fabric=preset.allow_gpu_clustering,
            )
            for preset in item.spec.presets
        },
        preemptible=item.status.allowed_for_preemptibles,
        gpu_quota=item.spec.gpu_count_quota_type,
    )


def _images(answer: mk8s.NodeGroupCompatibilityMatrix) -> tuple[Image, ...]:
    return tuple(
        Image(
            version=version.kubernetes_version, drivers=item.drivers_preset, platforms=tuple(item.compatible_platforms)
        )
        for version in answer.versions
        for item in version.items
    )


def _subnet(answer: vpc.Subnet) -> Subnet:
    pools = [cidr for pool in answer.status.ipv4_private_pools for cidr in pool.cidrs]
    return Subnet(project=answer.metadata.parent_id, cidrs=tuple(pools), ready=answer.status.state.name == "READY")


def _quota(item: quotas.QuotaAllowance) -> Quota:
    return Quota(
        name=item.metadata.name,
        region=item.spec.region,
        limit=item.spec.limit,
        usage=item.status.usage,
        unit=item.status.unit,
    )


def _block(item: capacity.CapacityBlockGroup) -> CapacityBlock:
    affinity = item.status.resource_affinity.compute_v1
    return CapacityBlock(
        id=item.metadata.id,
        region=item.status.region,
        platform=affinity.platform if affinity is not None else "",
        fabric=affinity.fabric if affinity is not None else "",
        active=item.status.state.name == "STATE_ACTIVE",
        limit=item.status.current_limit,
        usage=item.status.usage,
    )


def _advice(item: capacity.ResourceAdvice) -> Advice:
    instance = item.spec.compute_instance
    return Advice(
        region=item.spec.region,
        fabric=item.spec.fabric,
        platform=instance.platform if instance is not None else "",
        preset=instance.preset.name if instance is not None else "",
        reserved=_availability(item.status.reserved),
        on_demand=_availability(item.status.on_demand),
        preemptible=_availability(item.status.preemptible),
    )


def _availability(item: Any) -> Availability:
    return Availability(machines=item.available, fresh=item.data_state.name == "DATA_STATE_FRESH")


def _filesystem(item: compute.Filesystem) -> LiveFilesystem:
    return LiveFilesystem(
        project=item.metadata.parent_id,
        name=item.metadata.name,
        size_gib=item.status.size_bytes // GIBIBYTE,
        type=item.spec.type.name,
        state=item.status.state.name,
    )


def _gpu_cluster(item: compute.GpuCluster) -> LiveGpuCluster:
    return LiveGpuCluster(project=item.metadata.parent_id, name=item.metadata.name, fabric=item.spec.infiniband_fabric)


def _group(item: mk8s.NodeGroup) -> LiveGroup:
    resources = item.spec.template.resources
    return LiveGroup(
        name=item.metadata.name,
        platform=resources.platform,
        preset=resources.preset or "",
        machines=item.status.node_count,
    )
