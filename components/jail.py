"""The jail: one shared volume with a whole root file system, which users log in to and jobs run in."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from components.clouds.base import CloudResources
from components.jobs import create_job, job_spec
from components.pods import LIBEXEC, Scope, children_of, claim_volume, env, jail_mount, resources
from components.volumes import DataVolumeArgs, data_volume

CLAIM = "jail"


@dataclass(frozen=True, kw_only=True)
class JailArgs:
    """Inputs of `Jail`."""

    scope: Scope
    cloud: CloudResources
    size: str
    """Capacity as a Kubernetes quantity; it can grow but never shrink."""
    storage_class: str | None
    image: str
    """The image whose root file system is copied into an empty volume."""
    version: str
    """What the populate job writes into its marker."""
    protect: bool
    outside_namespace: pulumi.ResourceOptions
    """For the static volume, which does not go away with the namespace."""


class Jail(pulumi.ComponentResource):
    """The claim and the job that fills it once.

    A jail that has been filled is never overwritten: another image gives another job, which finds the marker and ends.
    Pods do not wait for this job but for its marker in the volume.
    """

    claim: k8s.core.v1.PersistentVolumeClaim

    def __init__(self, name: str, args: JailArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slurmstack:index:Jail", name, None, opts)
        self._child = children_of(self, opts)
        volume = DataVolumeArgs(
            scope=args.scope,
            cloud=args.cloud,
            claim=CLAIM,
            component="jail",
            size=args.size,
            access_mode="ReadWriteMany",
            storage_class=args.storage_class,
            protect=args.protect,
            outside_namespace=args.outside_namespace,
        )
        self.volume = data_volume(f"{name}-claim", volume, self._child)
        self.claim = self.volume.claim
        self.populate = self._create_populate_job(name, args)
        self.register_outputs({"claim": self.claim.metadata})

    def _create_populate_job(self, name: str, args: JailArgs) -> k8s.batch.v1.Job:
        return create_job(
            f"{name}-populate",
            args.scope.metadata("populate-jail", "jail"),
            job_spec(
                args.scope,
                "jail",
                args.cloud.placement("system"),
                k8s.core.v1.ContainerArgs(
                    name="populate",
                    image=args.image,
                    command=[f"{LIBEXEC}/populate"],
                    env=env(JAIL_VERSION=args.version, **self.volume.env),
                    volume_mounts=[jail_mount()],
                    resources=resources(cpu="100m", memory="64Mi"),
                ),
                [claim_volume("jail", CLAIM)],
            ),
            self._child,
            self.claim,
        )
