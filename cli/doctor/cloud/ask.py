"""The questions to the cloud, over the official SDK: all at the same time, within one limit. And its answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, TypeVar

from nebius.api.nebius.capacity import v1 as capacity
from nebius.api.nebius.common.v1 import GetByNameRequest
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


@dataclass(frozen=True)
class Answers:
    """Answers to all questions about one stack."""

    project: iam.Project
    groups: Answer[tuple[mk8s.NodeGroup, ...] | None]
    """Node groups of the stack's cluster. None: there is no such cluster."""
    tenant_quotas: Answer[tuple[quotas.QuotaAllowance, ...]]
    project_quotas: Answer[tuple[quotas.QuotaAllowance, ...]]
    advice: Answer[tuple[capacity.ResourceAdvice, ...]]
    """What the tenant could have now, by region, fabric and preset."""


def listed(answer: Answer[tuple[T, ...] | None]) -> tuple[T, ...]:
    """What is in a list; nothing where there was no answer, or no list."""
    return answer if isinstance(answer, tuple) else ()


async def ask(sdk: SDK, cloud: NebiusCloud, cluster: str, *, seconds: float) -> Answer[Answers]:
    """Everything about a stack that comes in time. Without its project, whose tenant is asked too, nothing is asked.

    Nothing that the service does is raised: then there is no answer.
    """
    deadline = asyncio.get_running_loop().time() + seconds
    limits = {"timeout": seconds, "per_retry_timeout": seconds / 2, "auth_timeout": seconds}
    options: dict[str, Any] = {**limits, "auth_options": AUTH_OPTIONS, "retries": 2}

    async def one(call: Callable[..., Awaitable[T]], request: Any) -> Answer[T]:
        try:
            async with asyncio.timeout_at(deadline):
                return await call(request, **options)
        except TimeoutError:
            return Unanswered(reason=f"no answer within {seconds:g} s")
        except (SDKError, OSError) as error:
            return _unanswered(error)

    every = partial(_pages, one)

    async def groups() -> Answer[tuple[mk8s.NodeGroup, ...] | None]:
        by_name = GetByNameRequest(parent_id=cloud.project_id, name=cluster)
        found = await one(mk8s.ClusterServiceClient(sdk).get_by_name, by_name)
        if isinstance(found, Unanswered):
            return None if found.missing else found
        request = mk8s.ListNodeGroupsRequest(parent_id=found.metadata.id)
        return await every(mk8s.NodeGroupServiceClient(sdk).list, request)

    project = await one(iam.ProjectServiceClient(sdk).get, iam.GetProjectRequest(id=cloud.project_id))
    if isinstance(project, Unanswered):
        return project
    tenant = project.metadata.parent_id
    of_quotas = quotas.QuotaAllowanceServiceClient(sdk).list
    # The service gives no advice about a project.
    advice = capacity.ListResourceAdviceRequest(parent_id=tenant)
    found = await asyncio.gather(
        groups(),
        every(of_quotas, quotas.ListQuotaAllowancesRequest(parent_id=tenant)),
        every(of_quotas, quotas.ListQuotaAllowancesRequest(parent_id=cloud.project_id)),
        every(capacity.ResourceAdviceServiceClient(sdk).list, advice),
    )
    return Answers(project, *found)


async def _pages(
    one: Callable[..., Awaitable[Any]], call: Callable[..., Awaitable[Any]], request: Any
) -> Answer[tuple[Any, ...]]:
    """Every item of a list, page by page."""
    items: list[Any] = []
    request.page_size = PAGE_SIZE
    while True:
        page = await one(call, request)
        if isinstance(page, Unanswered):
            return page
        items += page.items
        request.page_token = page.next_page_token
        if not page.next_page_token:
            return tuple(items)


def _unanswered(error: Exception) -> Unanswered:
    status = getattr(error, "status", None)
    code = str(getattr(getattr(status, "code", None), "name", ""))
    said = " ".join(str(getattr(status, "message", None) or error).split()).rstrip(".") or type(error).__name__
    return Unanswered(reason=f"{code or 'it failed'} ({said})", missing=code == "NOT_FOUND")
