"""The section `jail`: the shared volume, and which of the root file systems in it the cluster uses."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Annotated

from pydantic import AfterValidator, Field

from config.base import Section, Volume, matching, once
from config.names import StorageClassName
from config.sections.storage import Filesystem, Homes

ROOT_NAME = re.compile(r"^[a-z0-9]([a-z0-9.-]{0,38}[a-z0-9])?$")
_RESERVED = ("top", "first", "root", "roots", "none", "all")
"""Names that people would take for something else: in the output of `slurmstack jail list` and in its options."""

_PATH = re.compile(r"^(/[A-Za-z0-9_][A-Za-z0-9_.+@-]*)+$")

SHARED = ("home", "srv")
"""Directories at the volume's top that all roots share. images/common/jail_roots.py has the same."""

_OF_THE_SYSTEM = (
    "/bin", "/boot", "/dev", "/jail", "/lib", "/lib32", "/lib64", "/libx32", "/media", "/mnt", "/proc", "/root",
    "/run", "/sbin", "/sys", "/tmp", "/usr/bin", "/usr/include", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libexec",
    "/usr/libx32", "/usr/sbin", "/usr/share", "/var/cache", "/var/lib/apt", "/var/lib/dpkg", "/var/lib/sss",
    "/var/lock", "/var/log", "/var/run", "/var/spool", "/var/tmp",
)  # fmt: skip
"""What a root has from its image, and what pods bind over it."""

_OF_ACCOUNTS = (
    "security", "ssh", "skel", "login.defs", "nsswitch.conf", "doas.conf", "polkit-1", "dbus-1", "sssd", "krb5.keytab",
    "ld.so.preload", "slurm", "shells",
)  # fmt: skip
"""Of /etc: who somebody is and what he may do. What was carried along would give it back to who has lost it."""

_PREFIXES = ("sudo", "pam", "passwd", "shadow", "group", "gshadow", "subuid", "subgid")
"""Of /etc: the same, with whatever comes after it (`sudoers.d`, `pam.d`, `shadow-`)."""

_MOUNTED = ("resolv.conf", "hosts", "hostname")


def _root_name(name: str) -> str:
    if name in _RESERVED:
        raise ValueError(f"is {name!r}, which would be taken for something else; take another name")
    return name


RootName = Annotated[
    str,
    matching(ROOT_NAME, "is no name for a root: at most 40 small letters, digits, '.' and '-', none of the last two at "
             "either end"),
    AfterValidator(_root_name),
    Field(json_schema_extra={"pattern": ROOT_NAME.pattern}),
]  # fmt: skip
"""Name of a root file system in the jail's volume."""


def _carried(path: str) -> str:
    if not _PATH.fullmatch(path):
        raise ValueError("is not a path that can be carried: /opt, /usr/local, /etc/profile.d")
    given = PurePosixPath(path)
    for name in SHARED:
        if _overlap(given, PurePosixPath("/", name)):
            raise ValueError(f"has to do with /{name}, which all roots share; leave it out")
    for name in _OF_THE_SYSTEM:
        if _overlap(given, PurePosixPath(name)):
            raise ValueError(
                f"has to do with {name}, which each root has from its own image; carry what lies beside it, and "
                "install packages in the new root"
            )
    first, *below = given.parts[1:]
    if first == "etc":
        _check_etc(below)
    return path


def _check_etc(below: list[str]) -> None:
    if not below:
        raise ValueError(
            "is all of /etc, with accounts and sudo in it; name what you need of it, such as /etc/profile.d"
        )
    if below[0] in _OF_ACCOUNTS or below[0].startswith(_PREFIXES):
        raise ValueError(
            f"has to do with /etc/{below[0]}, which says who may do what: users are those of the stack file in each"
            " root"
        )
    if below[0] in _MOUNTED:
        raise ValueError(f"is /etc/{below[0]}, of which each pod has its own")


def _overlap(one: PurePosixPath, other: PurePosixPath) -> bool:
    return one == other or one in other.parents or other in one.parents


def _apart(paths: tuple[str, ...]) -> tuple[str, ...]:
    for path in paths:
        for other in paths:
            if PurePosixPath(other) in PurePosixPath(path).parents:
                raise ValueError(f"has {path!r}, which is within {other!r} already; remove it")
    return paths


CarriedPath = Annotated[str, AfterValidator(_carried)]
"""A path that is copied from one root into a new one."""


class Jail(Section):
    """The root file system that all login nodes and all jobs share."""

    size: Volume = "20Gi"
    """Size of the shared volume; at least 100Mi. It can grow but never shrink."""

    storage_class: StorageClassName | None = None
    """Storage class that offers ReadWriteMany. Default: a static volume of the cloud or
    the local cluster, else the Kubernetes cluster's default class."""

    filesystem: Filesystem = Field(default_factory=Filesystem)
    """The cloud's file system behind it."""

    root: RootName | None = None
    """Name of the root file system that pods lead into. One that is not there yet is filled from the jail's image,
    beside the others; homes (`/home`) and `/srv` are the same in all of them. Default: the first one, which is the
    volume itself (docs/jail.md)."""

    carry: Annotated[tuple[CarriedPath, ...], AfterValidator(once), AfterValidator(_apart)] = ()
    """Paths that are copied into a new root when it is filled, for example `/opt` and `/usr/local`."""

    carry_from: RootName | None = None
    """The root that they are copied from. Default: the first one."""

    homes: Homes | None = None
    """A volume of their own for homes (`/home`). To be chosen before the first `up`: a cluster whose homes are in the
    jail already does not get one, nor does it lose one (docs/jail.md). Default: homes are in the jail's volume."""
