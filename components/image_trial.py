"""The images of all but the workers, tried before anything runs with them."""

from __future__ import annotations

from collections.abc import Iterator

import pulumi
import pulumi_kubernetes as k8s

from components.kit import pods, workloads
from components.kit.context import Scope
from config.sections.services import ImageRole
from slurm.names import IMAGES


class ImageTrial(pulumi.ComponentResource):
    """A job, named after the images, that ends well if each can be pulled and its daemon started.

    A StatefulSet ends its pod before it starts the next one: an image with a mistyped tag, for another kind of CPU or
    with a broken program would take slurmctld, slurmdbd and their database away at once. All pods come after it.
    Workers' machines may have another kind of CPU: their nodes get their image one by one.
    """

    job: k8s.batch.v1.Job

    def __init__(self, name: str, scope: Scope, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slurmstack:index:ImageTrial", name, None, opts)
        *before, last = _containers(scope)
        child = pulumi.ResourceOptions(parent=self)
        # The deadline: seconds for all of them to be pulled and started.
        self.job = workloads.create_job(
            f"{name}-job", scope, IMAGES, last, child, before=before, deadline=900, once=True
        )
        self.register_outputs({})


def _containers(scope: Scope) -> Iterator[k8s.core.v1.ContainerArgs]:
    """One for each image that the cluster has: its program says what it is, without serving anybody."""
    config = scope.config
    programs: list[tuple[ImageRole, bool, str, str]] = [
        ("controller", True, "/usr/sbin/slurmctld -V", "slurm"),
        ("accounting", config.accounting.enabled, "/usr/sbin/slurmdbd -V", "slurm"),
        ("database", config.accounting.own_database is not None, "/usr/sbin/mariadbd --version", "MariaDB"),
        ("login", True, "/usr/sbin/sshd -V", "OpenSSH"),
        ("rest", config.rest.enabled, "/usr/sbin/slurmrestd -V", "slurm"),
        ("jail", True, "/bin/bash --version", "bash"),
    ]
    for role, used, program, word in programs:
        script = f'said="$({program} 2>&1)"; echo "{program}: $said"; case "$said" in *{word}*) ;; *) exit 1; esac'
        if used:
            yield k8s.core.v1.ContainerArgs(
                name=role,
                image=scope.image(role),
                command=["sh", "-c", script],
                resources=pods.resources(cpu="10m", memory="32Mi"),
            )
