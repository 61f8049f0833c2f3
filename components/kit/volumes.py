"""Volumes in pods, claims for data that must outlive pods, and the jail's volume with that of homes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from components.clouds.base import StaticVolumeArgs
from components.kit.context import Scope
from config.sections.storage import SHARED
from slurm.names import HOMES, HOMES_ENV, JAIL_DIR, JAIL_ROOT, JAIL_ROOTS, SIZE_ANNOTATION

LEAST_REQUEST = "1Gi"
"""What the claim of a cloud's own file system asks for, whatever its size.

Kubernetes refuses every change of a claim that no storage class serves, so a file system could not grow with its claim.
The volume has the real capacity, which may change.
"""

SHARED_DIRECTORY = "/shared"
"""Where the directories of all roots lie in a pod that leads into a named one: outside it, as other mounts do. Kubelet
would mount them in it by a path, in which root in the jail may have put a link to a directory of the container."""

_HOME = "home"
_HOMES_DIRECTORY = f"{SHARED_DIRECTORY}/{_HOME}"


def mount(name: str, path: str, *, read_only: bool | None = None) -> k8s.core.v1.VolumeMountArgs:
    """A volume in a container."""
    return k8s.core.v1.VolumeMountArgs(name=name, mount_path=path, read_only=read_only)


def empty_dir(name: str, *, size_limit: str, medium: str | None = None) -> k8s.core.v1.VolumeArgs:
    """A directory that lives as long as the pod."""
    source = k8s.core.v1.EmptyDirVolumeSourceArgs(medium=medium, size_limit=size_limit)
    return k8s.core.v1.VolumeArgs(name=name, empty_dir=source)


def memory_dir(name: str, *, size_limit: str = "64Mi") -> k8s.core.v1.VolumeArgs:
    """Such a directory that never comes to a disk."""
    return empty_dir(name, size_limit=size_limit, medium="Memory")


def config_volume(name: str, config_map: pulumi.Input[str], *, only: Sequence[str] = ()) -> k8s.core.v1.VolumeArgs:
    """A ConfigMap in a pod, or `only` some of its files."""
    items = [k8s.core.v1.KeyToPathArgs(key=key, path=key) for key in only] or None
    source = k8s.core.v1.ConfigMapVolumeSourceArgs(name=config_map, items=items)
    return k8s.core.v1.VolumeArgs(name=name, config_map=source)


def secret_volume(
    name: str,
    secret: pulumi.Input[str],
    *,
    mode: int = 0o400,
    files: Mapping[str, str] | None = None,
    optional: bool | None = None,
) -> k8s.core.v1.VolumeArgs:
    """A Secret in a pod. `files`: those of its keys that become files, with their names."""
    items = [k8s.core.v1.KeyToPathArgs(key=key, path=path) for key, path in (files or {}).items()] or None
    source = k8s.core.v1.SecretVolumeSourceArgs(secret_name=secret, default_mode=mode, items=items, optional=optional)
    return k8s.core.v1.VolumeArgs(name=name, secret=source)


def claim_volume(name: str, claim: pulumi.Input[str]) -> k8s.core.v1.VolumeArgs:
    """A volume claim in a pod."""
    source = k8s.core.v1.PersistentVolumeClaimVolumeSourceArgs(claim_name=claim)
    return k8s.core.v1.VolumeArgs(name=name, persistent_volume_claim=source)


def host_directory(name: str, path: str, *, kind: str = "Directory") -> k8s.core.v1.VolumeArgs:
    """A directory of the machine. `kind`: as a `hostPath` has it; by default it must be there."""
    source = k8s.core.v1.HostPathVolumeSourceArgs(path=path, type=kind)
    return k8s.core.v1.VolumeArgs(name=name, host_path=source)


@dataclass(frozen=True, kw_only=True)
class DataVolume:
    """A claim, and what is known of the file system behind it."""

    claim: k8s.core.v1.PersistentVolumeClaim
    filesystem: str | None
    """Type that the file system must have (`virtiofs`), or None where any will do. Another one is the machine's own
    disk, to which the cloud's file system was not mounted."""

    @property
    def env(self) -> dict[str, str]:
        """What a program that uses the volume is told of it."""
        return {"EXPECT_FILESYSTEM": self.filesystem} if self.filesystem is not None else {}


def data_volume(
    name: str,
    scope: Scope,
    claim_name: str,
    component: str,
    *,
    size: str,
    storage_class: str | None,
    shared: bool,
    opts: pulumi.ResourceOptions,
) -> DataVolume:
    """Make a claim: for the static volume that the cloud offers, or served by a storage class.

    `size`: a Kubernetes quantity, which can grow but never shrink. `storage_class`: None for the static volume, or the
    default class where the cloud has none. `shared`: whether many pods write at a time. With a static volume the
    storage class is empty, so that no provisioner steps in.
    """
    cloud = scope.cloud
    access_mode = "ReadWriteMany" if shared else "ReadWriteOnce"
    static = StaticVolumeArgs(
        namespace=scope.name, claim=claim_name, size=size, access_mode=access_mode, protect=scope.config.protects_data
    )
    outside = pulumi.ResourceOptions(parent=scope.root)
    volume = cloud.static_volume(static, outside) if storage_class is None else None
    metadata = scope.metadata(claim_name, component)
    request = size
    filesystem = cloud.volume_filesystem if volume is not None else None
    if filesystem is not None:
        request, metadata.annotations = LEAST_REQUEST, {SIZE_ANNOTATION: size}
    claim = k8s.core.v1.PersistentVolumeClaim(
        name,
        metadata=metadata,
        spec=k8s.core.v1.PersistentVolumeClaimSpecArgs(
            access_modes=[access_mode],
            storage_class_name="" if volume is not None else storage_class,
            volume_name=volume.metadata.name if volume is not None else None,
            resources=k8s.core.v1.VolumeResourceRequirementsArgs(requests={"storage": request}),
        ),
        opts=opts.merge(pulumi.ResourceOptions(protect=scope.config.protects_data)),
    )
    return DataVolume(claim=claim, filesystem=filesystem)


@dataclass(frozen=True, kw_only=True)
class JailVolume(DataVolume):
    """Without a name the root is the volume itself, as all clusters have it that never asked for another one."""

    root: str | None
    homes: DataVolume | None = None
    """The volume of homes; None where they are in the jail's."""

    @property
    def env(self) -> dict[str, str]:
        """What a program that uses it is told."""
        root = {JAIL_ROOT: self.root} if self.root is not None else {}
        return {**super().env, **root, **({HOMES_ENV: _HOMES_DIRECTORY} if self.homes is not None else {})}

    def volumes(self) -> list[k8s.core.v1.VolumeArgs]:
        """Those of a pod."""
        jail = claim_volume("jail", self.claim.metadata.name)
        return [jail, *([claim_volume(HOMES, self.homes.claim.metadata.name)] if self.homes is not None else [])]

    def whole(self) -> k8s.core.v1.VolumeMountArgs:
        """For what fills roots, and writes to all of them."""
        return mount("jail", JAIL_DIR)

    def of_homes(self, *, read_only: bool | None = None) -> list[k8s.core.v1.VolumeMountArgs]:
        """The volume of homes, where they have one."""
        return [mount(HOMES, _HOMES_DIRECTORY, read_only=read_only)] if self.homes is not None else []

    def mounts(self) -> list[k8s.core.v1.VolumeMountArgs]:
        """The root, for what leads into it."""
        if self.root is None:
            return [self.whole(), *self.of_homes()]
        inside = f"{JAIL_ROOTS}/{self.root}/root"
        return [
            k8s.core.v1.VolumeMountArgs(name="jail", mount_path=JAIL_DIR, sub_path=inside),
            *(
                k8s.core.v1.VolumeMountArgs(name="jail", mount_path=f"{SHARED_DIRECTORY}/{name}", sub_path=name)
                for name in self._in_jail
            ),
            *self.of_homes(),
        ]

    def shared(self) -> list[dict[str, str]]:
        """What is bound into the root: where it lies in the pod, and the path in the jail."""
        found = [] if self.root is None else [_bound(name) for name in self._in_jail]
        if self.homes is not None:
            filesystem = self.homes.filesystem
            found.append(_bound(_HOME) | ({"filesystem": filesystem} if filesystem else {}))
        return found

    @property
    def _in_jail(self) -> list[str]:
        """What roots share of the jail's own volume."""
        return [name for name in SHARED if name != _HOME or self.homes is None]


def _bound(name: str) -> dict[str, str]:
    return {"source": f"{SHARED_DIRECTORY}/{name}", "path": f"/{name}"}
