"""Claims for data that must outlive pods."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s


@dataclass(frozen=True, kw_only=True)
class DataClaimArgs:
    """A claim, either for one static volume or served by a storage class."""

    metadata: k8s.meta.v1.ObjectMetaArgs
    size: str
    access_mode: str
    storage_class: str | None
    volume: k8s.core.v1.PersistentVolume | None


def data_claim(name: str, args: DataClaimArgs, opts: pulumi.ResourceOptions) -> k8s.core.v1.PersistentVolumeClaim:
    """A PersistentVolumeClaim. With a static volume the storage class is empty, so that no provisioner steps in."""
    return k8s.core.v1.PersistentVolumeClaim(
        name,
        metadata=args.metadata,
        spec=k8s.core.v1.PersistentVolumeClaimSpecArgs(
            access_modes=[args.access_mode],
            storage_class_name="" if args.volume is not None else args.storage_class,
            volume_name=args.volume.metadata.name if args.volume is not None else None,
            resources=k8s.core.v1.VolumeResourceRequirementsArgs(requests={"storage": args.size}),
        ),
        opts=opts,
    )
