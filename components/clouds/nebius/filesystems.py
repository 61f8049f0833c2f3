"""Shared file systems: the jail, the controller's state, the database, and what the stack file mounts besides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pulumi
import pulumi_nebius as nebius

from components.clouds.nebius.scope import CloudScope
from config.base import parse_bytes
from config.nebius.needs import FilesystemNeed

OF_CONTROLLER = ("controller-state", "database-data")
"""File systems that only the machines of the role `controller` mount."""

OF_JAIL = ("jail", "homes")
"""What Jobs that write users' accounts and homes have, and backups."""

MOUNT_ROOT = "/mnt/slurmstack"
"""Directory of the machines below which each file system is mounted, under its tag."""


def mount_path(tag: str) -> str:
    """Where machines mount the file system of this tag."""
    return f"{MOUNT_ROOT}/{tag}"


def create_filesystems(
    scope: CloudScope, wanted: Iterable[FilesystemNeed], *, allow_replacement: bool
) -> Mapping[str, pulumi.Input[str]]:
    """Ids by tag. An existing file system is used as it is: it is none of Pulumi's."""
    return {item.tag: item.filesystem.id or _create(scope, item, allow_replacement).id for item in wanted}


def _create(scope: CloudScope, item: FilesystemNeed, allow_replacement: bool) -> nebius.ComputeV1Filesystem:
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
        size_gibibytes=item.size_gib,
        block_size_bytes=parse_bytes(filesystem.block_size) if filesystem.block_size else None,
        forbid_deletion=filesystem.forbid_deletion,
        labels=scope.labels,
        opts=scope.data_options(retain=filesystem.forbid_deletion and not allow_replacement),
    )
