"""`slurmstack:jail`, `mounts`: shared volumes, the file systems of a cloud behind them, and the jail's roots."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from config.base import Matching, Quantity, Section, Volume, once, parse_bytes
from config.names import ObjectName, dns_label

FilesystemType = Literal["NETWORK_SSD", "NETWORK_HDD", "WEKA", "VAST"]

_TAKEN_PATHS = (
    "bin", "boot", "dev", "etc", "jail", "lib", "lib32", "lib64", "libx32", "proc", "root", "run", "sbin", "sys", "tmp",
    "usr", "var",
)  # fmt: skip


def _mount_path(path: str) -> str:
    if not re.fullmatch(r"(/[A-Za-z0-9_][A-Za-z0-9_.-]*)+", path):
        raise ValueError("is not an absolute path such as /data")
    if path.split("/")[1] in _TAKEN_PATHS:
        raise ValueError(f"is inside /{path.split('/')[1]}, which belongs to the system in the jail")
    return path


MountName = Annotated[str, dns_label(longest=40)]


def _block_size(quantity: str) -> str:
    size = parse_bytes(quantity)
    if not 4096 <= size <= 131072 or size & (size - 1):
        raise ValueError("is not a block size: a power of two from 4Ki to 128Ki")
    return quantity


class Filesystem(Section):
    """A shared file system of the cloud. Only for clouds that have them (`cloud.kind: nebius`)."""

    id: str | None = Field(default=None, pattern=r"^computefilesystem-[a-z0-9-]+$")
    """An existing file system instead of a new one. It is used as it is and never deleted."""
    type: FilesystemType = "NETWORK_SSD"
    """Kind of file system. It can never change."""
    block_size: Annotated[Quantity, AfterValidator(_block_size)] | None = None
    """Block size: a power of two from 4Ki to 128Ki. It can never change. Default: the service's (4Ki). Not for WEKA."""
    forbid_deletion: bool = Field(default=True, strict=True)
    """Whether the cloud itself refuses to delete it."""


class Mount(Section):
    """A shared volume besides the jail, seen at one path by all login nodes and all jobs."""

    path: Annotated[str, AfterValidator(_mount_path)]
    """Where users and jobs see it, for example `/data`."""
    size: Volume = "1Ti"
    """Capacity; at least 100Mi. It can grow but never shrink."""
    storage_class: ObjectName | None = None
    """Storage class that offers ReadWriteMany. Default: a static volume of the cloud or
    the local cluster, else the Kubernetes cluster's default class."""
    filesystem: Filesystem = Field(default_factory=Filesystem)
    """The cloud's file system behind it."""


class Homes(Section):
    """A shared volume for users' homes, apart from the jail."""

    size: Volume = "100Gi"
    """Capacity; at least 100Mi. It can grow but never shrink."""
    storage_class: ObjectName | None = None
    """Storage class that offers ReadWriteMany. Default: a static volume of the cloud or
    the local cluster, else the Kubernetes cluster's default class."""
    filesystem: Filesystem = Field(default_factory=Filesystem)
    """The cloud's file system behind it."""


ROOT_NAME = r"^[a-z0-9]([a-z0-9.-]{0,38}[a-z0-9])?$"
_RESERVED = ("top", "first", "root", "roots", "none", "all")
"""Names that people would take for something else: in the output of `slurmstack jail list` and in its options."""

SHARED = ("home", "srv")
"""Directories at the volume's top that all roots share. images/common/jail_roots.py has the same."""

_OF_THE_SYSTEM = (*_TAKEN_PATHS, "home", "media", "mnt", "srv")
"""At a root's top: what it has from its image, what pods bind over it, what all roots share, accounts and sudo."""

_OF_THE_SITE = ("/usr/local", "/etc/profile.d", "/etc/modulefiles", "/etc/environment-modules", "/etc/lmod")
"""Within these, what sites add."""


def _root_name(name: str) -> str:
    if name in _RESERVED:
        raise ValueError(f"is {name!r}, which would be taken for something else; take another name")
    return name


RootName = Annotated[
    str,
    Matching(
        ROOT_NAME,
        "is no name for a root: at most 40 small letters, digits, '.' and '-', none of the last two at either end",
    ),
    AfterValidator(_root_name),
]
"""Name of a root file system in the jail's volume."""


def _carried(path: str) -> str:
    if not re.fullmatch(r"(/[A-Za-z0-9_][A-Za-z0-9_.+@-]*)+", path):
        raise ValueError("is not a path that can be carried: /opt, /usr/local, /etc/profile.d")
    ours = any(PurePosixPath(path).is_relative_to(place) for place in _OF_THE_SITE)
    if path.split("/")[1] in _OF_THE_SYSTEM and not ours:
        raise ValueError(
            "is of the system, of accounts, or shared by all roots: carry what the site has made, such as /opt, or is "
            f"in {', '.join(_OF_THE_SITE)}; install packages in the new root"
        )
    return path


CarriedPath = Annotated[str, AfterValidator(_carried)]
"""A path that is copied from one root into a new one."""


class Jail(Section):
    """The root file system that all login nodes and all jobs share."""

    size: Volume = "20Gi"
    """Size of the shared volume; at least 100Mi. It can grow but never shrink."""
    storage_class: ObjectName | None = None
    """Storage class that offers ReadWriteMany. Default: a static volume of the cloud or
    the local cluster, else the Kubernetes cluster's default class."""
    filesystem: Filesystem = Field(default_factory=Filesystem)
    """The cloud's file system behind it."""
    root: RootName | None = None
    """Name of the root file system that pods lead into. One that is not there yet is filled from the jail's image,
    beside the others; homes (`/home`) and `/srv` are the same in all of them. Default: the first one, which is the
    volume itself (docs/jail.md)."""
    carry: Annotated[tuple[CarriedPath, ...], AfterValidator(once)] = ()
    """Paths that are copied into a new root when it is filled, for example `/opt` and `/usr/local`."""
    carry_from: RootName | None = None
    """The root that they are copied from. Default: the first one."""
    homes: Homes | None = None
    """A volume of their own for homes (`/home`). To be chosen before the first `up`: a cluster whose homes are in the
    jail already does not get one, nor does it lose one (docs/jail.md). Default: homes are in the jail's volume."""
