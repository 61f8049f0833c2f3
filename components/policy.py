"""The policy: accounts, QOS and users in Slurm, made from the stack file."""

from __future__ import annotations

import pulumi
import pulumi_kubernetes as k8s

from components.accounting import Accounting
from components.configuration import Configuration
from components.kit import pods, volumes, workloads
from components.kit.context import Scope
from components.secrets import Secrets
from components.users import Users
from slurm.names import content_name
from slurm.policy import COMPONENT, POLICY_FILE, environment, policy_document

DATABASE_WAIT = 600
"""Seconds for the database to answer at all. On a first start its image is pulled meanwhile."""

DEADLINE = 1800
"""Seconds for the whole job. The program itself gives up earlier, with a message (images/accounting/policy.py)."""


class Policy(pulumi.ComponentResource):
    """The policy document and the job that brings Slurm in line with it.

    Both are named after their content: a changed document is a new job. Another configuration of Slurm is none: what
    Slurm has lost of the policy, whatever the reason, an update sees when it compares. The update waits
    until the policy is in force, or shows why Slurm refused a part of it; what is done stays, and the next one goes on.
    """

    def __init__(
        self,
        name: str,
        scope: Scope,
        *,
        secrets: Secrets,
        configuration: Configuration,
        accounting: Accounting,
        users: Users,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """What it waits for: slurmctld must know partitions, tracked resources and the users' numbers.

        Another configuration alone is no reason to run again. `accounting`: its database is checked before anything is
        changed. `users`: they are made in the jail before.
        """
        super().__init__("slurmstack:index:Policy", name, None, opts)
        self._child = pulumi.ResourceOptions(parent=self)
        document = policy_document(scope.config)
        self.document = k8s.core.v1.ConfigMap(
            f"{name}-document",
            metadata=scope.metadata(content_name(COMPONENT, document), COMPONENT),
            data={POLICY_FILE: document},
            immutable=True,
            opts=workloads.named_by_content(self._child),
        )
        image = scope.image("accounting")  # it has the program
        policy = k8s.core.v1.ContainerArgs(
            name=COMPONENT,
            image=image,
            command=[f"{pods.LIBEXEC}/policy", f"/config/policy/{POLICY_FILE}"],
            env=pods.env(**environment(scope.config)),
            volume_mounts=[pods.munge_mount(), volumes.mount("policy", "/config/policy", read_only=True)],
            resources=pods.resources(cpu="50m", memory="64Mi"),
        )
        check = k8s.core.v1.ContainerArgs(
            name="check-database",
            image=image,
            command=[f"{pods.LIBEXEC}/check-database", "--wait", str(DATABASE_WAIT)],
            volume_mounts=accounting.database_mounts,
            resources=pods.resources(cpu="10m", memory="32Mi"),
        )
        after = [configuration.active, accounting.stateful_set, users.job, self.document]
        self.job = workloads.create_job(
            f"{name}-job",
            scope,
            COMPONENT,
            policy,
            self._child,
            *after,
            volumes=[
                *pods.munge_volumes(secrets.munge.metadata.name),
                *accounting.database_volumes,
                volumes.config_volume("policy", self.document.metadata.name),
                configuration.volume,
            ],
            sidecars=[pods.munge_sidecar(image)],
            before=[configuration.waiting_container(), check],
            deadline=DEADLINE,
        )
        self.register_outputs({"document": self.document.metadata})
