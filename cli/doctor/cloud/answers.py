"""What the cloud said, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Unanswered:
    """No answer to a question, and why."""

    reason: str
    code: str = ""
    """Name of the gRPC status, for example `PERMISSION_DENIED`; empty where the service was not reached or asked."""

    @property
    def missing(self) -> bool:
        """Whether the answer is that there is no such thing."""
        return self.code == "NOT_FOUND"

    @property
    def refused(self) -> bool:
        """Whether the credentials were refused."""
        return self.code == "UNAUTHENTICATED"


Answer: TypeAlias = T | Unanswered


@dataclass(frozen=True, kw_only=True)
class Identity:
    """Whose credentials these are."""

    name: str
    active: bool = True
    anonymous: bool = False


@dataclass(frozen=True, kw_only=True)
class Project:
    """The project of the stack."""

    name: str
    tenant: str
    region: str
    state: str
    """`ACTIVE`, or what else it is."""


@dataclass(frozen=True, kw_only=True)
class KubernetesVersion:
    """A version that new clusters can have."""

    version: str
    deprecated: bool = False
    restricted: bool = False


@dataclass(frozen=True, kw_only=True)
class LivePreset:
    """A size of machine, as the service knows it."""

    vcpus: int
    memory_gib: int
    gpus: int
    fabric: bool


@dataclass(frozen=True, kw_only=True)
class LivePlatform:
    """A kind of machine, as the service knows it in this project."""

    presets: Mapping[str, LivePreset]
    preemptible: bool
    gpu_quota: str
    """Name of the quota that its GPUs count against; empty where the service does not say."""


@dataclass(frozen=True, kw_only=True)
class Image:
    """A system image for machines of Managed Kubernetes."""

    version: str
    """Kubernetes version, `1.36` or with a suffix."""
    drivers: str
    """Preset of its GPU drivers; empty: none."""
    platforms: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Subnet:
    """The subnet of the stack."""

    project: str
    cidrs: tuple[str, ...]
    """Ranges of private addresses."""
    ready: bool


@dataclass(frozen=True, kw_only=True)
class Quota:
    """How much of something a tenant or a project may have in one region."""

    name: str
    region: str
    limit: int | None
    """None: this container sets no limit of its own."""
    usage: int
    unit: str

    @property
    def free(self) -> int | None:
        """What is left; None: not limited here."""
        return None if self.limit is None else max(0, self.limit - self.usage)


@dataclass(frozen=True, kw_only=True)
class CapacityBlock:
    """Reserved GPUs of one platform on one fabric (a capacity block group)."""

    id: str
    region: str
    platform: str
    fabric: str
    active: bool
    limit: int
    """GPUs that are reserved now."""
    usage: int

    @property
    def free(self) -> int:
        """GPUs that nothing runs on yet."""
        return max(0, self.limit - self.usage)


@dataclass(frozen=True, kw_only=True)
class Availability:
    """Machines that could be had now."""

    machines: int
    fresh: bool
    """Whether the service vouches for the number."""


@dataclass(frozen=True, kw_only=True)
class Advice:
    """What could be had of one preset on one fabric."""

    region: str
    fabric: str
    platform: str
    preset: str
    reserved: Availability
    on_demand: Availability
    preemptible: Availability


@dataclass(frozen=True, kw_only=True)
class LiveFilesystem:
    """A shared file system that exists."""

    project: str
    name: str
    size_gib: int
    type: str
    state: str


@dataclass(frozen=True, kw_only=True)
class LiveGpuCluster:
    """A GPU cluster that exists."""

    project: str
    name: str
    fabric: str


@dataclass(frozen=True, kw_only=True)
class LiveGroup:
    """A node group of the stack's cluster."""

    name: str
    platform: str
    preset: str
    machines: int


@dataclass(frozen=True, kw_only=True)
class Present:
    """What of the stack is there already, from an earlier `up`: it counts as used, so it is not needed once more."""

    cluster: bool = False
    groups: tuple[LiveGroup, ...] = ()
    filesystems: tuple[LiveFilesystem, ...] = ()
    gpu_clusters: tuple[LiveGpuCluster, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Answers:
    """Answers to all questions about one stack."""

    identity: Answer[Identity]
    project: Answer[Project]
    present: Answer[Present]
    versions: Answer[tuple[KubernetesVersion, ...]]
    platforms: Answer[Mapping[str, LivePlatform]]
    images: Mapping[str, Answer[tuple[Image, ...]]]
    """Images by GPU platform."""
    subnet: Answer[Subnet]
    taken: Answer[tuple[str, ...]]
    """Address ranges of the subnet that are taken."""
    tenant_quotas: Answer[tuple[Quota, ...]]
    project_quotas: Answer[tuple[Quota, ...]]
    blocks: Answer[tuple[CapacityBlock, ...]]
    advice: Answer[tuple[Advice, ...]]
    filesystems: Mapping[str, Answer[LiveFilesystem]]
    """File systems that the stack names, by id."""
    gpu_clusters: Mapping[str, Answer[LiveGpuCluster]]
    """GPU clusters that the stack names, by id."""
