"""The jail: one shared volume with a whole root file system, which users log in to and jobs run in."""

from __future__ import annotations

import json

import pulumi
import pulumi_kubernetes as k8s

from components.kit import pods, volumes, workloads
from components.kit.context import Scope
from components.kit.volumes import DataVolume, JailVolume
from slurm.names import HOMES, JAIL


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
            env=pods.env(JAIL_VERSION=scope.tags["jail"], **self._told(scope), **self.volume.env),
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

    def _told(self, scope: Scope) -> dict[str, str]:
        """Of a named root, which has to have the release of the daemons: those of another one would not fit to it."""
        jail = scope.config.jail
        if jail.root is None:
            return {}
        carried = {"CARRY": json.dumps(jail.carry), "CARRY_FROM": jail.carry_from or ""} if jail.carry else {}
        return {"SLURM_RELEASE": scope.config.slurm.version, **carried}
