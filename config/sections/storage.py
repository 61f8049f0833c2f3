"""Shared file systems: the cloud's own, and what is mounted from them."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from config.base import Section, Volume, check_dns_label
from config.names import StorageClassName
from config.sections.machines import BlockSize

FilesystemType = Literal["NETWORK_SSD", "NETWORK_HDD", "WEKA", "VAST"]

_TAKEN_PATHS = (
    "bin", "boot", "dev", "etc", "jail", "lib", "lib32", "lib64", "libx32", "proc", "root", "run", "sbin", "sys", "tmp",
    "usr", "var",
)  # fmt: skip


def _mount_name(name: str) -> str:
    return check_dns_label(name, longest=40)


def _mount_path(path: str) -> str:
    if not re.fullmatch(r"(/[A-Za-z0-9_][A-Za-z0-9_.-]*)+", path):
        raise ValueError("is not an absolute path such as /data")
    if path.split("/")[1] in _TAKEN_PATHS:
        raise ValueError(f"is inside /{path.split('/')[1]}, which belongs to the system in the jail")
    return path


MountName = Annotated[str, AfterValidator(_mount_name)]


class Filesystem(Section):
    """A shared file system of the cloud. Only for clouds that have them (`cloud.kind: nebius`)."""

    id: str | None = Field(default=None, pattern=r"^computefilesystem-[a-z0-9-]+$")
    """An existing file system instead of a new one. It is used as it is and never deleted."""

    type: FilesystemType = "NETWORK_SSD"
    """Kind of file system. It can never change."""

    block_size: BlockSize | None = None
    """Block size: a power of two from 4Ki to 128Ki. It can never change. Default: the service's (4Ki). Not for WEKA."""

    forbid_deletion: bool = Field(default=True, strict=True)
    """Whether the cloud itself refuses to delete it."""

    @model_validator(mode="after")
    def _weka_has_no_blocks(self) -> Filesystem:
        if self.type == "WEKA" and self.block_size is not None:
            raise ValueError("block_size cannot be chosen for a file system of type WEKA")
        return self


class Mount(Section):
    """A shared volume besides the jail, seen at one path by all login nodes and all jobs."""

    path: Annotated[str, AfterValidator(_mount_path)]
    """Where users and jobs see it, for example `/data`."""

    size: Volume = "1Ti"
    """Capacity; at least 100Mi. It can grow but never shrink."""

    storage_class: StorageClassName | None = None
    """Storage class that offers ReadWriteMany. Default: a static volume of the cloud or
    the local cluster, else the Kubernetes cluster's default class."""

    filesystem: Filesystem = Field(default_factory=Filesystem)
    """The cloud's file system behind it."""


class Homes(Section):
    """A shared volume for users' homes, apart from the jail."""

    size: Volume = "100Gi"
    """Capacity; at least 100Mi. It can grow but never shrink."""

    storage_class: StorageClassName | None = None
    """Storage class that offers ReadWriteMany. Default: a static volume of the cloud or
    the local cluster, else the Kubernetes cluster's default class."""

    filesystem: Filesystem = Field(default_factory=Filesystem)
    """The cloud's file system behind it."""
