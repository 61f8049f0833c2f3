"""What a stack takes of its cloud besides machines: shared file systems, and disks for volumes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from config.base import gibibytes
from config.cluster import ClusterConfig
from config.sections.accounting import Database
from config.sections.services import Controller
from config.sections.storage import Filesystem, Homes, Jail, Mount

VOLUME_DISK: Final = "NETWORK_SSD"
"""Kind of disk behind the default storage class of Nebius' Managed Kubernetes (`compute-csi-default-sc`)."""

_Volumes: TypeAlias = dict[str, tuple[str, Jail | Homes | Controller | Database | Mount]]
"""Size and section by tag, as below."""


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


def filesystems_of(config: ClusterConfig) -> list[FilesystemNeed]:
    """Volumes that are shared file systems of the cloud. One whose section names a storage class is served by that."""
    return [
        FilesystemNeed(tag=tag, size_gib=gibibytes(size), filesystem=section.filesystem)
        for tag, (size, section) in _volumes(config).items()
        if section.filesystem is not None and section.storage_class is None
    ]


def disks_of(config: ClusterConfig) -> list[int]:
    """GiB of each volume that Kubernetes makes a disk for."""
    there = [(size, section.storage_class) for size, section in _volumes(config).values() if section.filesystem is None]
    if config.monitoring.install:
        there.append((config.monitoring.storage, config.monitoring.storage_class))
    return [gibibytes(size) for size, storage_class in there if storage_class is None]


def _volumes(config: ClusterConfig) -> _Volumes:
    """The order is that of the names: another order would be another template, and roll all machines."""
    jail, controller, database = config.jail, config.controller, config.accounting.own_database
    volumes: _Volumes = {"jail": (jail.size, jail)}
    if jail.homes is not None:
        volumes["homes"] = (jail.homes.size, jail.homes)
    volumes["controller-state"] = (controller.storage, controller)
    if database is not None:
        volumes["database-data"] = (database.storage, database)
    return volumes | {f"mount-{name}": (mount.size, mount) for name, mount in sorted(config.mounts.items())}
