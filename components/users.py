"""Users: accounts in the jail, made from the stack file."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from components.kit import pods, volumes, workloads
from components.kit.context import Scope
from components.kit.volumes import JailVolume
from config.cluster import ClusterConfig
from slurm.names import content_name
from slurm.users import accounts, group_numbers

USERS_FILE = "users.json"


@dataclass(frozen=True, kw_only=True)
class UsersArgs:
    """Inputs of `Users`."""

    scope: Scope
    config: ClusterConfig
    jail: JailVolume


class Users(pulumi.ComponentResource):
    """A list of accounts and the job that brings the jail in line with it: each root, as old pods are in old ones.

    Both are named after their content: a changed list is a new job, and the update waits until the accounts are there.
    An account that left the list is locked; its home stays. A group that left it stays, without members of ours.
    """

    def __init__(self, name: str, args: UsersArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slurmstack:index:Users", name, None, opts)
        self._child = pulumi.ResourceOptions(parent=self)
        users = accounts(args.config.users, extra_keys=args.scope.cloud.login_keys)
        declared = {"users": users, "groups": group_numbers(args.config.groups)}
        document = json.dumps(declared, indent=1, sort_keys=True)
        object_name = content_name("users", {**declared, "image": args.scope.image("jail")})
        self.accounts = k8s.core.v1.ConfigMap(
            f"{name}-list",
            metadata=args.scope.metadata(object_name, "users"),
            data={USERS_FILE: document},
            immutable=True,
            opts=workloads.named_by_content(self._child),
        )
        self._args = args
        self.job = workloads.create_job(
            f"{name}-job", args.scope, "users", self.container(), self._child, volumes=self.volumes()
        )
        self.register_outputs({"accounts": self.accounts.metadata})

    def container(self) -> k8s.core.v1.ContainerArgs:
        """What brings the jail in line with the list. It can be done at any time, and as often as one likes."""
        jail = self._args.jail
        return k8s.core.v1.ContainerArgs(
            name="users",
            image=self._args.scope.image("jail"),
            command=[f"{pods.LIBEXEC}/users", f"/config/users/{USERS_FILE}"],
            env=pods.env(**jail.env) or None,
            volume_mounts=[jail.whole(), *jail.of_homes(), volumes.mount("users", "/config/users", read_only=True)],
            resources=pods.resources(cpu="50m", memory="32Mi"),
        )

    def volumes(self) -> list[k8s.core.v1.VolumeArgs]:
        """Those of its pod."""
        return [
            *self._args.jail.volumes(),
            volumes.config_volume("users", self.accounts.metadata.name),
        ]
