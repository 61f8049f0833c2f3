"""The jail: one shared volume with a whole root file system, which users log in to and jobs run in."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from components.kit.context import Scope
from components.kit.jobs import create_job, job_spec
from components.kit.volumes import data_volume
from components.kit.workload import LIBEXEC, claim_volume, env, jail_mount, resources
from config.sections.services import Jail as JailConfig

CLAIM = "jail"


@dataclass(frozen=True, kw_only=True)
class JailArgs:
    """Inputs of `Jail`."""

    scope: Scope
    jail: JailConfig


class Jail(pulumi.ComponentResource):
    """The claim and the job that fills it once.

    A jail that has been filled is never overwritten: another image gives another job, which finds the marker and ends.
    Pods do not wait for this job but for its marker in the volume.
    """

    claim: k8s.core.v1.PersistentVolumeClaim

    def __init__(self, name: str, args: JailArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slurmstack:index:Jail", name, None, opts)
        self._child = pulumi.ResourceOptions(parent=self)
        jail = args.jail
        self.volume = data_volume(
            f"{name}-claim", args.scope, CLAIM, "jail",
            size=jail.size, storage_class=jail.storage_class, shared=True, opts=self._child,
        )  # fmt: skip
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
                args.scope.cloud.placement("system"),
                k8s.core.v1.ContainerArgs(
                    name="populate",
                    image=args.scope.image("jail"),  # its root file system is copied into an empty volume
                    command=[f"{LIBEXEC}/populate"],
                    env=env(JAIL_VERSION=args.scope.tags["jail"], **self.volume.env),
                    volume_mounts=[jail_mount()],
                    resources=resources(cpu="100m", memory="64Mi"),
                ),
                [claim_volume("jail", CLAIM)],
            ),
            self._child,
            self.claim,
        )
