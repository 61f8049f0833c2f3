"""What the cloud said: its own messages, or that there was no answer, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from nebius.api.nebius.capacity.v1 import CapacityBlockGroup, ResourceAdvice
from nebius.api.nebius.compute.v1 import Filesystem, GpuCluster, Platform
from nebius.api.nebius.iam.v2 import Project
from nebius.api.nebius.mk8s.v1 import NodeGroup
from nebius.api.nebius.quotas.v1 import QuotaAllowance
from nebius.api.nebius.vpc.v1 import Allocation, Subnet

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

    project: Project
    groups: Answer[tuple[NodeGroup, ...] | None]
    """Node groups of the stack's cluster. None: there is no such cluster."""
    filesystems: Answer[tuple[Filesystem, ...]]
    """All of the project."""
    gpu_clusters: Answer[tuple[GpuCluster, ...]]
    """All of the project."""
    platforms: Answer[tuple[Platform, ...]]
    """Kinds of machines in the project's region."""
    tenant_quotas: Answer[tuple[QuotaAllowance, ...]]
    project_quotas: Answer[tuple[QuotaAllowance, ...]]
    blocks: Answer[tuple[CapacityBlockGroup, ...]]
    """Reserved capacity of the tenant."""
    advice: Answer[tuple[ResourceAdvice, ...]]
    """What the tenant could have now, by region, fabric and preset."""
    subnet: Answer[Subnet] | None = None
    """None: the stack names none."""
    taken: Answer[tuple[Allocation, ...]] = ()
    """Addresses of the subnet that are taken, public ones too."""


def listed(answer: Answer[tuple[T, ...]]) -> tuple[T, ...]:
    """What is in a list; nothing where there was no answer."""
    return () if isinstance(answer, Unanswered) else answer
