"""Shared file systems: the jail, the controller's state, the database, and what the stack file mounts besides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
import pulumi_nebius as nebius

from components.clouds.nebius.scope import CloudScope
from config.base import parse_bytes
from config.cluster import ClusterConfig
from config.storage import Filesystem
from slurm.accounting import own_database
from slurm.needs import gibibytes

JAIL_TAG = "jail"
STATE_TAG = "controller-state"
DATABASE_TAG = "database-data"
OF_CONTROLLER = (STATE_TAG, DATABASE_TAG)
"""File systems that only the machines of the role `controller` mount."""

MOUNT_ROOT = "/mnt/slurmstack"
"""Directory of the machines below which each file system is mounted, under its tag."""


@dataclass(frozen=True, kw_only=True)
class SharedFilesystem:
    """A file system of the stack file. Its tag is also the name of the claim that gets it."""

    tag: str
    filesystem: Filesystem
    size: str


def shared_filesystems(config: ClusterConfig) -> list[SharedFilesystem]:
    """All file systems that machines mount, new ones and existing ones.

    Where a storage class is named, claims are served by it and the cloud's own file system is not needed. The order is
    that of the names: another order would be another template, and roll all machines.
    """
    found = []
    if config.jail.storage_class is None:
        found.append(SharedFilesystem(tag=JAIL_TAG, filesystem=config.jail.filesystem, size=config.jail.size))
    if config.controller.filesystem is not None and config.controller.storage_class is None:
        state = config.controller.filesystem
        found.append(SharedFilesystem(tag=STATE_TAG, filesystem=state, size=config.controller.storage))
    database = own_database(config)
    if database is not None and database.filesystem is not None and database.storage_class is None:
        found.append(SharedFilesystem(tag=DATABASE_TAG, filesystem=database.filesystem, size=database.storage))
    found += [
        SharedFilesystem(tag=f"mount-{name}", filesystem=mount.filesystem, size=mount.size)
        for name, mount in sorted(config.mounts.items())
        if mount.storage_class is None
    ]
    return found


def mount_path(tag: str) -> str:
    """Where machines mount the file system of this tag."""
    return f"{MOUNT_ROOT}/{tag}"


def create_filesystems(
    scope: CloudScope, wanted: list[SharedFilesystem], *, allow_replacement: bool
) -> Mapping[str, pulumi.Input[str]]:
    """Ids by tag. An existing file system is used as it is: it is none of Pulumi's."""
    return {item.tag: item.filesystem.id or _create(scope, item, allow_replacement).id for item in wanted}


def _create(scope: CloudScope, item: SharedFilesystem, allow_replacement: bool) -> nebius.ComputeV1Filesystem:
    """A new file system.

    What the cloud is to keep from deletion, Pulumi does not try to delete either: `destroy` forgets it, and the next
    stack can name it by its id.
    """
    filesystem = item.filesystem
    return nebius.ComputeV1Filesystem(
        scope.name(item.tag),
        name=scope.name(item.tag),
        parent_id=scope.project,
        type=filesystem.type,
        size_gibibytes=gibibytes(item.size),
        block_size_bytes=parse_bytes(filesystem.block_size) if filesystem.block_size else None,
        forbid_deletion=filesystem.forbid_deletion,
        labels=scope.labels,
        opts=scope.data_options(retain=filesystem.forbid_deletion and not allow_replacement),
    )
