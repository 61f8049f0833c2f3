"""Claims for data that must outlive pods."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from components.clouds.base import CloudResources, StaticVolumeArgs
from components.pods import Scope
from slurm.names import SIZE_ANNOTATION

LEAST_REQUEST = "1Gi"
"""What the claim of a cloud's own file system asks for, whatever its size.

Kubernetes refuses every change of a claim that no storage class serves, so a file system could not grow with its claim.
The volume has the real capacity, which may change.
"""


@dataclass(frozen=True, kw_only=True)
class DataVolumeArgs:
    """A claim, either for the static volume that the cloud offers or served by a storage class."""

    scope: Scope
    cloud: CloudResources
    claim: str
    """Name of the claim."""
    component: str
    size: str
    """Capacity as a Kubernetes quantity; it can grow but never shrink."""
    access_mode: str
    storage_class: str | None
    """None: the cloud's static volume, or the default class where it has none."""
    protect: bool
    outside_namespace: pulumi.ResourceOptions
    """For the static volume, which does not go away with the namespace."""


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


def data_volume(name: str, args: DataVolumeArgs, children: pulumi.ResourceOptions) -> DataVolume:
    """Make a claim. With a static volume the storage class is empty, so that no provisioner steps in."""
    static = StaticVolumeArgs(
        namespace=args.scope.name,
        claim=args.claim,
        size=args.size,
        access_mode=args.access_mode,
        protect=args.protect,
    )
    volume = args.cloud.static_volume(static, args.outside_namespace) if args.storage_class is None else None
    metadata = args.scope.metadata(args.claim, args.component)
    request = args.size
    filesystem = args.cloud.volume_filesystem if volume is not None else None
    if filesystem is not None:
        request, metadata.annotations = LEAST_REQUEST, {SIZE_ANNOTATION: args.size}
    claim = k8s.core.v1.PersistentVolumeClaim(
        name,
        metadata=metadata,
        spec=k8s.core.v1.PersistentVolumeClaimSpecArgs(
            access_modes=[args.access_mode],
            storage_class_name="" if volume is not None else args.storage_class,
            volume_name=volume.metadata.name if volume is not None else None,
            resources=k8s.core.v1.VolumeResourceRequirementsArgs(requests={"storage": request}),
        ),
        opts=children.merge(pulumi.ResourceOptions(protect=args.protect)),
    )
    return DataVolume(claim=claim, filesystem=filesystem)
