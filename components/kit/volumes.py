"""Claims for data that must outlive pods."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from components.clouds.base import StaticVolumeArgs
from components.kit.context import Scope
from slurm.names import SIZE_ANNOTATION

LEAST_REQUEST = "1Gi"
"""What the claim of a cloud's own file system asks for, whatever its size.

Kubernetes refuses every change of a claim that no storage class serves, so a file system could not grow with its claim.
The volume has the real capacity, which may change.
"""


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
    keeps_mode: bool = False,
    opts: pulumi.ResourceOptions,
) -> DataVolume:
    """Make a claim: for the static volume that the cloud offers, or served by a storage class.

    `size`: a Kubernetes quantity, which can grow but never shrink. `storage_class`: None for the static volume, or the
    default class where the cloud has none. `shared`: whether many pods write at a time. With a static volume the
    storage class is empty, so that no provisioner steps in. `keeps_mode`: a static volume, which all machines mount
    whatever its mode is called, keeps the mode of one that is not shared, as no claim may ever change its own.
    """
    cloud = scope.cloud
    access_mode = "ReadWriteMany" if shared and not (keeps_mode and storage_class is None) else "ReadWriteOnce"
    static = StaticVolumeArgs(
        namespace=scope.name, claim=claim_name, size=size, access_mode=access_mode, protect=scope.protect
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
        opts=opts.merge(pulumi.ResourceOptions(protect=scope.protect)),
    )
    return DataVolume(claim=claim, filesystem=filesystem)
