"""The questions to the cloud, over the official SDK: all at the same time, within one limit. And its answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from nebius.api.nebius.capacity import v1 as capacity
from nebius.api.nebius.common.v1 import GetByNameRequest
from nebius.api.nebius.compute import v1 as compute
from nebius.api.nebius.iam import v2 as iam
from nebius.api.nebius.mk8s import v1 as mk8s
from nebius.api.nebius.quotas import v1 as quotas
from nebius.base.error import SDKError
from nebius.sdk import SDK

from cli.access.nebius_sdk import AUTH_OPTIONS
from config.sections.cloud import NebiusCloud

PAGE_SIZE = 200
"""Items of one page: the most that all lists allow."""

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Unanswered:
    """No answer to a question."""

    reason: str
    missing: bool = False
    """Whether the answer is that there is no such thing."""


Answer: TypeAlias = T | Unanswered


@dataclass(frozen=True, kw_only=True)
class Answers:
    """Answers to all questions about one stack."""

    project: iam.Project
    groups: Answer[tuple[mk8s.NodeGroup, ...] | None]
    """Node groups of the stack's cluster. None: there is no such cluster."""
    gpu_clusters: Answer[tuple[compute.GpuCluster, ...]]
    """All of the project."""
    tenant_quotas: Answer[tuple[quotas.QuotaAllowance, ...]]
    project_quotas: Answer[tuple[quotas.QuotaAllowance, ...]]
    advice: Answer[tuple[capacity.ResourceAdvice, ...]]
    """What the tenant could have now, by region, fabric and preset."""


def listed(answer: Answer[tuple[T, ...]]) -> tuple[T, ...]:
    """What is in a list; nothing where there was no answer."""
    return () if isinstance(answer, Unanswered) else answer


async def ask(sdk: SDK, cloud: NebiusCloud, cluster: str, *, seconds: float) -> Answer[Answers]:
    """Everything about a stack that comes in time. Without its project, whose tenant is asked too, nothing is asked."""
    questions = _Questions(sdk, seconds)
    project_id = cloud.project_id
    project = await questions.one(iam.ProjectServiceClient(sdk).get, iam.GetProjectRequest(id=project_id))
    if isinstance(project, Unanswered):
        return project
    tenant_id = project.metadata.parent_id
    asked: dict[str, Awaitable[Any]] = {"groups": questions.groups(project_id, cluster)}
    for name, client, request, parent_id in (
        ("tenant_quotas", quotas.QuotaAllowanceServiceClient, quotas.ListQuotaAllowancesRequest, tenant_id),
        ("project_quotas", quotas.QuotaAllowanceServiceClient, quotas.ListQuotaAllowancesRequest, project_id),
        ("gpu_clusters", compute.GpuClusterServiceClient, compute.ListGpuClustersRequest, project_id),
        # The service gives no advice about a project.
        ("advice", capacity.ResourceAdviceServiceClient, capacity.ListResourceAdviceRequest, tenant_id),
    ):
        asked[name] = questions.every(client(sdk).list, request(parent_id=parent_id))
    return Answers(project=project, **dict(zip(asked, await asyncio.gather(*asked.values()), strict=True)))


class _Questions:
    """Puts questions until one moment for all. Nothing that the service does is raised: then there is no answer."""

    def __init__(self, sdk: SDK, seconds: float) -> None:
        self._sdk = sdk
        self._seconds = seconds
        self._deadline = asyncio.get_running_loop().time() + seconds
        self._options: dict[str, Any] = {
            "timeout": seconds,
            "per_retry_timeout": seconds / 2,
            "auth_timeout": seconds,
            "auth_options": AUTH_OPTIONS,
            "retries": 2,
        }

    async def one(self, call: Callable[..., Awaitable[T]], request: Any) -> Answer[T]:
        """The answer to one request."""
        try:
            async with asyncio.timeout_at(self._deadline):
                return await call(request, **self._options)
        except TimeoutError:
            return Unanswered(reason=f"no answer within {self._seconds:g} s")
        except (SDKError, OSError) as error:
            return _unanswered(error)

    async def every(self, call: Callable[..., Awaitable[Any]], request: Any) -> Answer[tuple[Any, ...]]:
        """Every item of a list, page by page."""
        items: list[Any] = []
        request.page_size = PAGE_SIZE
        while True:
            page = await self.one(call, request)
            if isinstance(page, Unanswered):
                return page
            items += page.items
            request.page_token = page.next_page_token
            if not page.next_page_token:
                return tuple(items)

    async def groups(self, project_id: str, cluster: str) -> Answer[tuple[mk8s.NodeGroup, ...] | None]:
        """Node groups of the cluster of this name. None: there is no such cluster."""
        by_name = GetByNameRequest(parent_id=project_id, name=cluster)
        found = await self.one(mk8s.ClusterServiceClient(self._sdk).get_by_name, by_name)
        if isinstance(found, Unanswered):
            return None if found.missing else found
        groups = mk8s.ListNodeGroupsRequest(parent_id=found.metadata.id)
        return await self.every(mk8s.NodeGroupServiceClient(self._sdk).list, groups)


def _unanswered(error: Exception) -> Unanswered:
    status = getattr(error, "status", None)
    code = str(getattr(getattr(status, "code", None), "name", ""))
    message = " ".join(str(getattr(status, "message", None) or error).split()).rstrip(".") or type(error).__name__
    return Unanswered(reason=f"{code or 'it failed'} ({message})", missing=code == "NOT_FOUND")
