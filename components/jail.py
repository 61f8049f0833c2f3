"""The jail, one shared volume with a root file system that users log in to and jobs run in; and mounts beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import pulumi
import pulumi_kubernetes as k8s

from components.kit import pods, volumes, workloads
from components.kit.context import Scope
from components.kit.volumes import DataVolume, JailVolume
from config.sections.storage import Mount as MountConfig
from slurm.names import HOMES, JAIL

DIRECTORY = "/mounts"
"""Where the volumes lie in a pod that leads into the jail, each below its name: outside the jail, from where they are
bound into it once it is populated."""


class Jail(pulumi.ComponentResource):
    """The claim and the job that fills it, or the root in it that the stack file names, once.

    What has been filled is never overwritten: another image gives another job, which finds the marker and ends. Pods do
    not wait for this job but for its marker in the volume.
    """

    claim: k8s.core.v1.PersistentVolumeClaim

    def __init__(self, name: str, scope: Scope, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slurmstack:index:Jail", name, None, opts)
        self._child = pulumi.ResourceOptions(parent=self)
        jail = scope.config.jail
        volume = volumes.data_volume(
            f"{name}-claim", scope, JAIL, "jail",
            size=jail.size, storage_class=jail.storage_class, shared=True, opts=self._child,
        )  # fmt: skip
        self.claim = volume.claim
        self.volume = JailVolume(
            claim=volume.claim, filesystem=volume.filesystem, root=jail.root, homes=self._create_homes(name, scope)
        )
        self.populate = self._create_populate_job(name, scope)
        self.register_outputs({"claim": self.claim.metadata})

    def _create_homes(self, name: str, scope: Scope) -> DataVolume | None:
        homes = scope.config.jail.homes
        if homes is None:
            return None
        return volumes.data_volume(
            f"{name}-homes", scope, HOMES, "jail",
            size=homes.size, storage_class=homes.storage_class, shared=True, opts=self._child,
        )  # fmt: skip

    def _create_populate_job(self, name: str, scope: Scope) -> k8s.batch.v1.Job:
        populate = k8s.core.v1.ContainerArgs(
            name="populate",
            image=scope.image("jail"),  # its root file system is copied into an empty volume
            command=[f"{pods.LIBEXEC}/populate"],
            env=pods.env(JAIL_VERSION=scope.tags["jail"], **self._root_env(scope), **self.volume.env),
            volume_mounts=[self.volume.whole()],
            resources=pods.resources(cpu="100m", memory="64Mi"),
        )
        return workloads.create_job(
            f"{name}-populate",
            scope,
            "jail",
            populate,
            self._child,
            self.claim,
            called="populate-jail",
            volumes=[volumes.claim_volume("jail", JAIL)],
        )

    def _root_env(self, scope: Scope) -> dict[str, str]:
        """Of a named root, which has to have the release of the daemons: those of another one would not fit to it."""
        jail = scope.config.jail
        if jail.root is None:
            return {}
        carried = {"CARRY": json.dumps(jail.carry), "CARRY_FROM": jail.carry_from or ""} if jail.carry else {}
        return {"SLURM_RELEASE": scope.config.slurm.version, **carried}


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
