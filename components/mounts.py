"""Mounts: shared volumes besides the jail, which users and jobs see at paths of their own."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import pulumi
import pulumi_kubernetes as k8s

from components.kit import volumes
from components.kit.context import Scope
from config.sections.storage import Mount as MountConfig

DIRECTORY = "/mounts"
"""Where the volumes lie in a pod that leads into the jail, each below its name: outside the jail, from where they are
bound into it once it is populated."""


class Mount(pulumi.ComponentResource):
    """One shared volume: a claim that all workers and login nodes mount."""

    claim: k8s.core.v1.PersistentVolumeClaim

    def __init__(
        self, name: str, scope: Scope, key: str, mount: MountConfig, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        """`key`: in the stack file."""
        super().__init__("slurmstack:index:Mount", name, None, opts)
        self.name = f"mount-{key}"
        self.path = mount.path
        self.source = f"{DIRECTORY}/{key}"
        child = pulumi.ResourceOptions(parent=self)
        self._volume = volumes.data_volume(
            f"{name}-claim", scope, self.name, "mount",
            size=mount.size, storage_class=mount.storage_class, shared=True, opts=child,
        )  # fmt: skip
        self.claim = self._volume.claim
        self.register_outputs({"claim": self.claim.metadata})

    @property
    def filesystem(self) -> str | None:
        """Type that the volume's file system must have; None: any."""
        return self._volume.filesystem


def mount_volumes(mounts: Sequence[Mount]) -> list[k8s.core.v1.VolumeArgs]:
    """The volumes of a pod."""
    return [volumes.claim_volume(each.name, each.claim.metadata.name) for each in mounts]


def container_mounts(mounts: Sequence[Mount], *, in_jail: bool) -> list[k8s.core.v1.VolumeMountArgs]:
    """The volumes in a container: beside the jail, or at the users' own paths where there is no jail."""
    return [volumes.mount(each.name, each.source if in_jail else each.path) for each in mounts]


def mounts_env(mounts: Sequence[Mount], *, in_jail: bool, shared: Sequence[Mapping[str, str]] = ()) -> dict[str, str]:
    """`MOUNTS` for the worker's or login node's start (images/common/jail_view.py); nothing without mounts.

    `shared`: what all roots of the jail share, in the same form; a mount at the same path wins.
    """
    paths = {each.path for each in mounts}
    own = [dict(each) for each in shared if in_jail and each["path"] not in paths]
    if not mounts and not own:
        return {}
    entries = own + [
        {"source": each.source if in_jail else each.path, "path": each.path}
        | ({"filesystem": each.filesystem} if each.filesystem else {})
        for each in mounts
    ]
    return {"MOUNTS": json.dumps(entries, sort_keys=True)}
