"""What a stack takes of its cloud: machines, GPUs, disks, file systems, addresses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Literal

from config.base import parse_bytes
from config.cluster import ClusterConfig
from config.machines import BootDisk, CountOrPercent
from config.nebius import NebiusCloud, SystemNodes
from config.platforms import Preset, nebius_catalogue
from config.storage import Filesystem
from config.workers import WorkerPool
from slurm.accounting import own_database

GIBIBYTE = 2**30

ROLE_MAX_PODS = 110
"""Pods on one machine of our own roles at most: the Nebius service's default, with which it sizes a node's range."""

STATE_DISK_TYPE = "NETWORK_SSD"
"""Kind of disk behind the default storage class of Nebius' Managed Kubernetes (`compute-csi-default-sc`)."""

INTERNAL = ("nebius.com/load-balancer-type", "internal")
"""Annotation and value of a Service that only the network can reach (README of nebius/nebius-solutions-library)."""

Role = Literal["system", "controller", "login", "worker"]


@dataclass(frozen=True, kw_only=True)
class NodeNeed:
    """Machines of one kind: a worker pool's, or those of one of our own roles."""

    where: str
    """Key in the stack file, for example `worker_nodes.default`."""
    role: Role
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
    surge: int
    """Machines more while the group is updated (`update_strategy.max_surge`)."""
    disk_type: str
    disk_gib: int
    """Boot disk of one machine, in GiB, rounded up."""
    max_pods: int
    groups: int = 1
    """Node groups that hold these machines; a pool of size 0 has one too."""

    @property
    def addresses(self) -> int:
        """Addresses that one machine takes of the subnet for its pods."""
        return pod_addresses(self.max_pods)


@dataclass(frozen=True, kw_only=True)
class FilesystemNeed:
    """A shared file system."""

    tag: str
    """`jail`, `controller-state`, `database-data` or `mount-<name>`: the tag that machines mount it by."""
    where: str
    """Key in the stack file that has its size."""
    type: str
    size_gib: int
    """Capacity in GiB, rounded up."""
    existing_id: str | None
    """The file system to use; None: a new one is made."""


@dataclass(frozen=True, kw_only=True)
class Needs:
    """Everything that a stack takes of its cloud while it runs. Other than machines, all is taken from the start."""

    nodes: tuple[NodeNeed, ...] = ()
    filesystems: tuple[FilesystemNeed, ...] = ()
    volume_gib: Mapping[str, int]
    """Disks that Kubernetes makes for volumes: GiB by kind of disk, in all."""
    fabrics: Mapping[str, tuple[str, ...]]
    """New GPU clusters: platforms of the pools, by InfiniBand fabric."""
    gpu_clusters: Mapping[str, tuple[str, ...]]
    """Existing GPU clusters: platforms of the pools, by id."""
    load_balancers: int = 0
    """Addresses for Services."""
    public_addresses: int = 0
    """Those of them that the world can reach."""

    @property
    def machines(self) -> int:
        """Machines in all."""
        return sum(node.count for node in self.nodes)

    @property
    def gpus(self) -> Mapping[str, int]:
        """GPUs by platform; platforms without any are left out."""
        return _sums((node.platform, node.count * node.size.gpus) for node in self.nodes)

    @property
    def vcpus(self) -> int:
        """Virtual CPUs of all machines."""
        return sum(node.count * node.size.vcpus for node in self.nodes)

    @property
    def cpu_vcpus(self) -> int:
        """Virtual CPUs of machines without GPUs: those that Nebius counts against a quota."""
        return sum(node.count * node.size.vcpus for node in self.nodes if not node.size.gpus)

    @property
    def boot_disk_gib(self) -> Mapping[str, int]:
        """GiB of boot disks by kind of disk."""
        return _sums((node.disk_type, node.count * node.disk_gib) for node in self.nodes)

    @property
    def filesystem_gib(self) -> Mapping[str, int]:
        """GiB of new file systems by kind; existing ones take nothing more."""
        return _sums((item.type, item.size_gib) for item in self.filesystems if item.existing_id is None)

    @property
    def pod_addresses(self) -> int:
        """Addresses that all machines take of the subnet for their pods."""
        return sum(node.count * node.addresses for node in self.nodes)


def needs(config: ClusterConfig) -> Needs:
    """What the stack takes of its cloud. Nothing, where the cluster is already there.

    The stack file must have been checked: an unknown platform or preset raises KeyError.
    """
    if not isinstance(config.cloud, NebiusCloud):
        return Needs(volume_gib={}, fabrics={}, gpu_clusters={})
    pools = config.worker_nodes
    balanced = config.login.service_type == "LoadBalancer"
    return Needs(
        nodes=(
            *_role_nodes(config, config.cloud),
            *(_worker_nodes(name, pool) for name, pool in pools.items()),
        ),
        filesystems=tuple(_filesystems(config)),
        volume_gib=_sums((STATE_DISK_TYPE, gibibytes(size)) for size in _disks(config)),
        fabrics=_platforms_by(pools, "infiniband_fabric"),
        gpu_clusters=_platforms_by(pools, "id"),
        load_balancers=int(balanced),
        public_addresses=int(balanced and config.login.annotations.get(INTERNAL[0]) != INTERNAL[1]),
    )


def pod_addresses(max_pods: int) -> int:
    """Addresses of one machine's pod range: twice its pods, rounded up to a power of two (110 pods: a /24)."""
    return 1 << (2 * max_pods - 1).bit_length()


def gibibytes(quantity: str) -> int:
    """A size in whole GiB, rounded up."""
    return ceil(parse_bytes(quantity) / GIBIBYTE)


def _worker_nodes(name: str, pool: WorkerPool) -> NodeNeed:
    platform, preset = str(pool.platform), str(pool.preset)
    groups = pool.node_groups
    count = max(pool.size, groups * pool.autoscaling.min_size)
    return NodeNeed(
        where=f"worker_nodes.{name}",
        role="worker",
        pool=name,
        platform=platform,
        preset=preset,
        size=nebius_catalogue().platforms[platform].presets[preset],
        count=count,
        groups=groups,
        most=count,  # a node group follows the worker pods, so there are never more machines than workers
        surge=groups * _machines(pool.update_strategy.max_surge, of=ceil(count / groups)) if count else 0,
        disk_type=pool.boot_disk.type,
        disk_gib=gibibytes(pool.boot_disk.size),
        max_pods=pool.max_pods,
    )


def _role_nodes(config: ClusterConfig, cloud: NebiusCloud) -> Iterator[NodeNeed]:
    login = config.login.size
    yield _role("system", cloud.system_nodes, begin=1, most=cloud.system_nodes.max_size)
    yield _role("controller", cloud.controller_nodes, begin=1, most=1)
    yield _role("login", cloud.login_nodes, begin=min(1, login), most=min(login, cloud.login_nodes.max_size))


def _role(role: Role, nodes: SystemNodes, *, begin: int, most: int) -> NodeNeed:
    count = max(begin, nodes.min_size)
    disk: BootDisk = nodes.boot_disk
    return NodeNeed(
        where=f"cloud.{role}_nodes",
        role=role,
        pool=None,
        platform=nodes.platform,
        preset=nodes.preset,
        size=nebius_catalogue().platforms[nodes.platform].presets[nodes.preset],
        count=count,
        most=max(count, most),
        surge=0,
        disk_type=disk.type,
        disk_gib=gibibytes(disk.size),
        max_pods=ROLE_MAX_PODS,
    )


def _filesystems(config: ClusterConfig) -> Iterator[FilesystemNeed]:
    """No storage class takes the place of any of these: the check of the stack file refuses one."""
    state = config.controller.filesystem
    yield _filesystem("jail", "jail.size", config.jail.filesystem, config.jail.size)
    if state is not None:
        yield _filesystem("controller-state", "controller.storage", state, config.controller.storage)
    database = own_database(config)
    if database is not None and database.filesystem is not None:
        yield _filesystem("database-data", "accounting.database.storage", database.filesystem, database.storage)
    for name, mount in config.mounts.items():
        yield _filesystem(f"mount-{name}", f"mounts.{name}.size", mount.filesystem, mount.size)


def _disks(config: ClusterConfig) -> Iterator[str]:
    """Sizes of the volumes that the default storage class serves."""
    for volume in (config.controller, own_database(config)):
        if volume is not None and volume.filesystem is None and volume.storage_class is None:
            yield volume.storage


def _filesystem(tag: str, where: str, filesystem: Filesystem, size: str) -> FilesystemNeed:
    return FilesystemNeed(
        tag=tag, where=where, type=filesystem.type, size_gib=gibibytes(size), existing_id=filesystem.id
    )


def _platforms_by(
    pools: Mapping[str, WorkerPool], field: Literal["infiniband_fabric", "id"]
) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for pool in pools.values():
        key = getattr(pool.gpu_cluster, field, None)
        if key is not None and pool.platform not in found.setdefault(key, []):
            found[key].append(str(pool.platform))
    return {key: tuple(platforms) for key, platforms in found.items()}


def _machines(amount: CountOrPercent, *, of: int) -> int:
    return amount if isinstance(amount, int) else ceil(of * int(amount.removesuffix("%")) / 100)


def _sums(items: Iterator[tuple[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for key, amount in items:
        total[key] += amount
    return {key: amount for key, amount in total.items() if amount}
