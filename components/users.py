"""Users: accounts in the jail, made from the stack file."""

from __future__ import annotations

import json

import pulumi
import pulumi_kubernetes as k8s

from components.kit import pods, volumes, workloads
from components.kit.context import Scope
from components.kit.volumes import JailVolume
from slurm.names import content_name
from slurm.users import accounts, group_numbers

USERS_FILE = "users.json"


class Users(pulumi.ComponentResource):
    """A list of accounts and the job that brings the jail in line with it: each root, as old pods are in old ones.

    Both are named after their content: a changed list is a new job, and the update waits until the accounts are there.
    An account that left the list is locked; its home stays. A group that left it stays, without members of ours.
    """

    def __init__(self, name: str, scope: Scope, jail: JailVolume, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slurmstack:index:Users", name, None, opts)
        self._child = pulumi.ResourceOptions(parent=self)
        self._scope, self._jail = scope, jail
        users = accounts(scope.config.users, extra_keys=scope.cloud.login_keys)
        declared = {"users": users, "groups": group_numbers(scope.config.groups)}
        document = json.dumps(declared, indent=1, sort_keys=True)
        object_name = content_name("users", {**declared, "image": scope.image("jail")})
        self.accounts = k8s.core.v1.ConfigMap(
            f"{name}-list",
            metadata=scope.metadata(object_name, "users"),
            data={USERS_FILE: document},
            immutable=True,
            opts=workloads.named_by_content(self._child),
        )
        self.job = workloads.create_job(
            f"{name}-job", scope, "users", self.container(), self._child, volumes=self.volumes()
        )
        self.register_outputs({"accounts": self.accounts.metadata})

    def container(self) -> k8s.core.v1.ContainerArgs:
        """What brings the jail in line with the list. It can be done at any time, and as often as one likes."""
        jail = self._jail
        return k8s.core.v1.ContainerArgs(
            name="users",
            image=self._scope.image("jail"),
            command=[f"{pods.LIBEXEC}/users", f"/config/users/{USERS_FILE}"],
            env=pods.env(**jail.env) or None,
            volume_mounts=[jail.whole(), *jail.of_homes(), volumes.mount("users", "/config/users", read_only=True)],
            resources=pods.resources(cpu="50m", memory="32Mi"),
        )

    def volumes(self) -> list[k8s.core.v1.VolumeArgs]:
        """Those of its pod."""
        return [
            *self._jail.volumes(),
            volumes.config_volume("users", self.accounts.metadata.name),
        ]
