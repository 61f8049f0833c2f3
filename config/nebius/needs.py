"""What a stack takes of its cloud: machines, GPUs, disks, file systems, addresses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from config.base import gibibytes
from config.cluster import ClusterConfig
from config.nebius.platforms import Preset, nebius_catalogue
from config.sections.accounting import Database
from config.sections.cloud import NebiusCloud, Role
from config.sections.services import Controller
from config.sections.storage import Filesystem, Homes, Jail, Mount
from config.sections.workers import WorkerPool

ROLE_MAX_PODS = 110
"""Pods on one machine of our own roles at most: the Nebius service's default, with which it sizes a node's range."""

STATE_DISK_TYPE = "NETWORK_SSD"
"""Kind of disk behind the default storage class of Nebius' Managed Kubernetes (`compute-csi-default-sc`)."""

_TYPE_ANNOTATION = "nebius.com/load-balancer-type"
"""`internal` asks for a load balancer that only the network can reach; by default it is public (README of
nebius/nebius-solutions-library)."""


@dataclass(frozen=True, kw_only=True)
class NodeNeed:
    """Machines of one kind: a worker pool's, or those of one of our own roles."""

    role: Role | Literal["worker"]
    pool: str | None
    """The worker pool; None for the other roles."""
    platform: str
    preset: str
    size: Preset
    """What one machine has."""
    count: int
    """Machines that the stack runs with: workers as many as `size` says, other roles what they need to begin."""
    most: int
    """Machines that autoscaling may come to; never less than `count`."""
    disk_type: str
    disk_gib: int
    """Boot disk of one machine, in GiB, rounded up."""


@dataclass(frozen=True, kw_only=True)
class FilesystemNeed:
    """A shared file system."""

    tag: str
    """`jail`, `homes`, `controller-state`, `database-data` or `mount-<name>`: the tag that machines mount it by, and
    the name of the claim that gets it."""
    size_gib: int
    """Capacity in GiB, rounded up."""
    filesystem: Filesystem
    """Its `id` is that of an existing one; else a new one is made."""


@dataclass(frozen=True, kw_only=True)
class Needs:
    """Everything that a stack takes of its cloud while it runs. Other than machines, all is taken from the start."""

    nodes: tuple[NodeNeed, ...] = ()
    filesystems: tuple[FilesystemNeed, ...] = ()
    volume_gib: Mapping[str, int]
    """Disks that Kubernetes makes for volumes: GiB by kind of disk, in all."""
    fabrics: Mapping[str, tuple[str, ...]]
    """New GPU clusters: platforms of the pools, by InfiniBand fabric."""

    @property
    def machines(self) -> int:
        """Machines in all."""
        return sum(node.count for node in self.nodes)

    @property
    def filesystem_gib(self) -> Mapping[str, int]:
        """GiB of new file systems by kind; existing ones take nothing more."""
        return _sums((item.filesystem.type, item.size_gib) for item in self.filesystems if item.filesystem.id is None)


def needs(config: ClusterConfig) -> Needs:
    """What the stack takes of its cloud. Nothing, where the cluster is already there."""
    if not isinstance(config.cloud, NebiusCloud):
        return Needs(volume_gib={}, fabrics={})
    fabrics: dict[str, list[str]] = {}
    for pool in config.worker_nodes.values():
        fabric = pool.gpu_cluster and pool.gpu_cluster.infiniband_fabric
        if fabric and pool.platform not in fabrics.setdefault(fabric, []):
            fabrics[fabric].append(str(pool.platform))
    return Needs(
        nodes=tuple(node_needs(config.cloud, config.worker_nodes, config.login.size)),
        filesystems=tuple(filesystems_of(config)),
        volume_gib=_sums(
            (STATE_DISK_TYPE, volume.size_gib)
            for volume in _volumes(config)
            if volume.filesystem is None and volume.storage_class is None
        ),
        fabrics={fabric: tuple(platforms) for fabric, platforms in fabrics.items()},
    )


def is_internal(annotations: Mapping[str, str]) -> bool:
    """Whether a Service with these annotations can be reached from the network only."""
    return annotations.get(_TYPE_ANNOTATION) == "internal"


def node_needs(cloud: NebiusCloud, pools: Mapping[str, WorkerPool], logins: int) -> Iterator[NodeNeed]:
    """Machines of our own roles and of the pools, as far as their platforms and presets are known."""
    begin = {"system": 1, "controller": 1, "login": min(1, logins)}
    most = {"controller": 1, "login": logins}
    for role, nodes in cloud.roles.items():
        size = nebius_catalogue().preset(nodes.platform, nodes.preset)
        if size is not None:
            count = max(begin[role], nodes.min_size)
            yield NodeNeed(
                role=role,
                pool=None,
                platform=nodes.platform,
                preset=nodes.preset,
                size=size,
                count=count,
                most=max(count, min(most.get(role, nodes.max_size), nodes.max_size)),
                disk_type=nodes.boot_disk.type,
                disk_gib=gibibytes(nodes.boot_disk.size),
            )
    for name, pool in pools.items():
        size = nebius_catalogue().preset(str(pool.platform), str(pool.preset))
        if size is not None:
            yield _worker_nodes(name, pool, size)


def _worker_nodes(name: str, pool: WorkerPool, size: Preset) -> NodeNeed:
    count = max(pool.least, pool.node_groups * pool.kept_in_group)
    return NodeNeed(
        role="worker",
        pool=name,
        platform=str(pool.platform),
        preset=str(pool.preset),
        size=size,
        count=count,
        most=max(count, pool.most),
        disk_type=pool.boot_disk.type,
        disk_gib=gibibytes(pool.boot_disk.size),
    )


_TAGS = {
    "jail": "jail",
    "jail.homes": "homes",
    "controller": "controller-state",
    "accounting.database": "database-data",
}
"""Of the sections that have one volume each."""


def filesystems_of(config: ClusterConfig) -> list[FilesystemNeed]:
    """Volumes that are shared file systems of the cloud. One whose section names a storage class is served by that.

    The order is that of the names: another order would be another template, and roll all machines.
    """
    return [
        FilesystemNeed(
            tag=_TAGS.get(volume.name, volume.name.replace("mounts.", "mount-")),
            size_gib=volume.size_gib,
            filesystem=volume.filesystem,
        )
        for volume in _volumes(config)
        if volume.filesystem is not None and volume.storage_class is None
    ]


class _Volume(NamedTuple):
    name: str
    """Its key in the stack file."""
    size_gib: int
    storage_class: str | None
    filesystem: Filesystem | None
    """The shared file system behind it. None: a disk."""


def _volumes(config: ClusterConfig) -> Iterator[_Volume]:
    """In an order that stays: templates of node groups list the file systems in it."""
    jail, controller, database = config.jail, config.controller, config.accounting.own_database
    yield _volume("jail", jail.size, jail)
    if jail.homes is not None:
        yield _volume("jail.homes", jail.homes.size, jail.homes)
    yield _volume("controller", controller.storage, controller)
    if database is not None:
        yield _volume("accounting.database", database.storage, database)
    if config.monitoring.install:
        yield _Volume("monitoring", gibibytes(config.monitoring.storage), config.monitoring.storage_class, None)
    for name, mount in sorted(config.mounts.items()):
        yield _volume(f"mounts.{name}", mount.size, mount)


def _volume(name: str, size: str, section: Jail | Homes | Controller | Database | Mount) -> _Volume:
    return _Volume(name, gibibytes(size), section.storage_class, section.filesystem)


def _sums(items: Iterator[tuple[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for key, amount in items:
        total[key] += amount
    return {key: amount for key, amount in total.items() if amount}
