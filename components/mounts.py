"""Mounts: shared volumes besides the jail, which users and jobs see at paths of their own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from components.clouds.base import CloudResources
from components.pods import Scope, children_of, claim_volume, mount
from components.volumes import DataVolumeArgs, data_volume
from config.storage import Mount as MountConfig

DIRECTORY = "/mounts"
"""Where the volumes lie in a pod that leads into the jail, each below its name: outside the jail, from where they are
bound into it once it is populated."""


@dataclass(frozen=True, kw_only=True)
class MountArgs:
    """Inputs of `Mount`."""

    scope: Scope
    cloud: CloudResources
    mount: MountConfig
    protect: bool
    outside_namespace: pulumi.ResourceOptions
    """For the static volume, which does not go away with the namespace."""


class Mount(pulumi.ComponentResource):
    """One shared volume: a claim that all workers and login nodes mount."""

    claim: k8s.core.v1.PersistentVolumeClaim

    def __init__(self, name: str, mount_name: str, args: MountArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slurmstack:index:Mount", name, None, opts)
        self.name = f"mount-{mount_name}"
        self.path = args.mount.path
        self.source = f"{DIRECTORY}/{mount_name}"
        volume = DataVolumeArgs(
            scope=args.scope,
            cloud=args.cloud,
            claim=self.name,
            component="mount",
            size=args.mount.size,
            access_mode="ReadWriteMany",
            storage_class=args.mount.storage_class,
            protect=args.protect,
            outside_namespace=args.outside_namespace,
        )
        self._volume = data_volume(f"{name}-claim", volume, children_of(self, opts))
        self.claim = self._volume.claim
        self.register_outputs({"claim": self.claim.metadata})

    @property
    def filesystem(self) -> str | None:
        """Type that the volume's file system must have; None: any."""
        return self._volume.filesystem


def mount_volumes(mounts: Sequence[Mount]) -> list[k8s.core.v1.VolumeArgs]:
    """The volumes of a pod."""
    return [claim_volume(each.name, each.claim.metadata.name) for each in mounts]


def container_mounts(mounts: Sequence[Mount], *, in_jail: bool) -> list[k8s.core.v1.VolumeMountArgs]:
    """The volumes in a container: beside the jail, or at the users' own paths where there is no jail."""
    return [mount(each.name, each.source if in_jail else each.path) for each in mounts]


def mounts_env(mounts: Sequence[Mount], *, in_jail: bool) -> dict[str, str]:
    """`MOUNTS` for the worker's or login node's start (images/common/jail_mounts.py); nothing without mounts."""
    if not mounts:
        return {}
    entries = [
        {"source": each.source if in_jail else each.path, "path": each.path}
        | ({"filesystem": each.filesystem} if each.filesystem else {})
        for each in mounts
    ]
    return {"MOUNTS": json.dumps(entries, sort_keys=True)}
