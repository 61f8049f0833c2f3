"""The images of the control plane, tried before anything runs with them."""

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
    "controller": ("slurmctld -V", "slurm"),
    "accounting": ("slurmdbd -V", "slurm"),
    "database": ("mariadbd --version", "MariaDB"),
    "login": ("sshd -V", "OpenSSH"),
    "rest": ("slurmrestd -V", "slurm"),
}
"""By image: what its daemon says of itself without serving anybody, and a word of that."""


@dataclass(frozen=True, kw_only=True)
class ImageTrialArgs:
    """Inputs of `ImageTrial`."""

    scope: Scope
    config: ClusterConfig

    @property
    def roles(self) -> list[ImageRole]:
        """The images whose loss takes Slurm, or the way to it, from everybody. New workers are tried one by one."""
        config = self.config
        used: dict[ImageRole, bool] = {
            "controller": True,
            "accounting": config.accounting.enabled,
            "database": config.accounting.own_database is not None,
            "login": True,
            "rest": config.rest.enabled,
        }
        return [role for role, is_used in used.items() if is_used]


class ImageTrial(pulumi.ComponentResource):
    """A job, named after the images, that ends well if each can be pulled and its daemon started.

    A StatefulSet ends its pod before it starts the next one: an image with a mistyped tag, for another kind of CPU or
    with a broken program would take slurmctld, slurmdbd and their database away at once. All of these come after it.
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
    told = f'said="$(/usr/sbin/{program} 2>&1)"; echo "{program}: $said"'
    return k8s.core.v1.ContainerArgs(
        name=role,
        image=scope.image(role),
        command=["sh", "-c", f'{told}; case "$said" in *{word}*) ;; *) exit 1; esac'],
        resources=pods.resources(cpu="10m", memory="32Mi"),
    )
