"""The images of all but the workers, tried before anything runs with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from components.kit import pods, workloads
from components.kit.context import Scope
from config.cluster import ClusterConfig
from config.sections.services import ImageRole
from slurm.names import IMAGES

DEADLINE = 900
"""Seconds for all of them to be pulled and started."""

_PROGRAMS: Mapping[ImageRole, tuple[str, str]] = {
    "controller": ("/usr/sbin/slurmctld -V", "slurm"),
    "accounting": ("/usr/sbin/slurmdbd -V", "slurm"),
    "database": ("/usr/sbin/mariadbd --version", "MariaDB"),
    "login": ("/usr/sbin/sshd -V", "OpenSSH"),
    "rest": ("/usr/sbin/slurmrestd -V", "slurm"),
    "jail": ("/bin/bash --version", "bash"),
}
"""By image: what its program says of itself without serving anybody, and a word of that.

Not the workers', whose machines may have another kind of CPU: their nodes get it one by one."""


@dataclass(frozen=True, kw_only=True)
class ImageTrialArgs:
    """Inputs of `ImageTrial`."""

    scope: Scope
    config: ClusterConfig

    @property
    def roles(self) -> list[ImageRole]:
        """Those of them that the cluster has."""
        config = self.config
        used: dict[ImageRole, bool] = {
            "controller": True,
            "accounting": config.accounting.enabled,
            "database": config.accounting.own_database is not None,
            "login": True,
            "rest": config.rest.enabled,
            "jail": True,
        }
        return [role for role, is_used in used.items() if is_used]


class ImageTrial(pulumi.ComponentResource):
    """A job, named after the images, that ends well if each can be pulled and its daemon started.

    A StatefulSet ends its pod before it starts the next one: an image with a mistyped tag, for another kind of CPU or
    with a broken program would take slurmctld, slurmdbd and their database away at once. All pods come after it.
    """

    job: k8s.batch.v1.Job

    def __init__(self, name: str, args: ImageTrialArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slurmstack:index:ImageTrial", name, None, opts)
        *before, last = [_container(args.scope, role) for role in args.roles]
        self.job = workloads.create_job(
            f"{name}-job",
            args.scope,
            IMAGES,
            last,
            pulumi.ResourceOptions(parent=self),
            before=before,
            deadline=DEADLINE,
            once=True,
        )
        self.register_outputs({})


def _container(scope: Scope, role: ImageRole) -> k8s.core.v1.ContainerArgs:
    program, word = _PROGRAMS[role]
    script = f'said="$({program} 2>&1)"; echo "{program}: $said"'
    return k8s.core.v1.ContainerArgs(
        name=role,
        image=scope.image(role),
        command=["sh", "-c", f'{script}; case "$said" in *{word}*) ;; *) exit 1; esac'],
        resources=pods.resources(cpu="10m", memory="32Mi"),
    )
