"""The cluster's own database: MariaDB for slurmdbd, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from components.clouds.base import CloudResources
from components.pods import (
    STARTING,
    Scope,
    children_of,
    claim_volume,
    empty_dir,
    env,
    mount,
    pod_template,
    program,
    resources,
    starting,
    waits,
)
from components.volumes import DataVolume, DataVolumeArgs, data_volume
from config.accounting import Database as DatabaseConfig
from config.base import parse_bytes
from slurm.names import DATABASE, DATABASE_PORT, NODES_SERVICE

DATA_CLAIM = "database-data"

SHUTDOWN_SECONDS = 120
"""For a clean end: changed pages are written out. Killed earlier, it recovers at its next start."""

PASSWORD_KEY = "password"  # noqa: S105  the key in the Secret
PASSWORD_DIR = "/secrets/database"  # noqa: S105  a directory


@dataclass(frozen=True, kw_only=True)
class DatabaseArgs:
    """Inputs of `Database`."""

    scope: Scope
    cloud: CloudResources
    image: str
    database: DatabaseConfig
    password_secret: pulumi.Input[str]
    protect: bool
    outside_namespace: pulumi.ResourceOptions
    """For the static volume, which does not go away with the namespace."""


class Database(pulumi.ComponentResource):
    """A StatefulSet of one MariaDB pod, its claim and its Service, whose address survives the pod."""

    service: k8s.core.v1.Service

    def __init__(self, name: str, args: DatabaseArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slurmstack:index:Database", name, None, opts)
        self._child = children_of(self, opts)
        self._volume = self._create_volume(name, args)
        self.claim = self._volume.claim
        self.service = self._create_service(name, args.scope)
        self.stateful_set = self._create_stateful_set(name, args)
        self.register_outputs({"service": self.service.metadata})

    def _create_volume(self, name: str, args: DatabaseArgs) -> DataVolume:
        volume = DataVolumeArgs(
            scope=args.scope,
            cloud=args.cloud,
            claim=DATA_CLAIM,
            component=DATABASE,
            size=args.database.storage,
            access_mode="ReadWriteOnce",
            storage_class=args.database.storage_class,
            protect=args.protect,
            outside_namespace=args.outside_namespace,
        )
        return data_volume(f"{name}-data", volume, self._child)

    def _create_service(self, name: str, scope: Scope) -> k8s.core.v1.Service:
        return k8s.core.v1.Service(
            f"{name}-service",
            metadata=scope.metadata(DATABASE, DATABASE),
            spec=k8s.core.v1.ServiceSpecArgs(
                type="ClusterIP",
                selector=scope.selector(DATABASE),
                # There is only one: to cut slurmdbd off for a slow answer to the probe would help nobody.
                publish_not_ready_addresses=True,
                ports=[k8s.core.v1.ServicePortArgs(name="mariadb", port=DATABASE_PORT, target_port=DATABASE_PORT)],
            ),
            opts=self._child,
        )

    def _create_stateful_set(self, name: str, args: DatabaseArgs) -> k8s.apps.v1.StatefulSet:
        scope = args.scope
        pod = k8s.core.v1.PodSpecArgs(
            enable_service_links=False,
            image_pull_secrets=scope.pull_secrets,
            termination_grace_period_seconds=SHUTDOWN_SECONDS,
            containers=[_mariadbd(args, self._volume)],
            volumes=[
                claim_volume("data", self.claim.metadata.name),
                password_volume(args.password_secret, PASSWORD_KEY),
                empty_dir("run", medium="Memory", size_limit="64Mi"),
            ],
        )
        return k8s.apps.v1.StatefulSet(
            f"{name}-pods",
            metadata=scope.metadata(DATABASE, DATABASE),
            spec=k8s.apps.v1.StatefulSetSpecArgs(
                replicas=1,
                service_name=NODES_SERVICE,
                selector=k8s.meta.v1.LabelSelectorArgs(match_labels=scope.selector(DATABASE)),
                template=pod_template(scope, scope.labels(DATABASE), args.cloud.placement("controller"), pod),
            ),
            opts=self._child.merge(waits(STARTING)),
        )


def password_volume(secret: pulumi.Input[str], key: str) -> k8s.core.v1.VolumeArgs:
    """The password of slurmdbd's user in the database."""
    source = k8s.core.v1.SecretVolumeSourceArgs(
        secret_name=secret,
        default_mode=0o400,
        items=[k8s.core.v1.KeyToPathArgs(key=key, path=PASSWORD_KEY)],
    )
    return k8s.core.v1.VolumeArgs(name="database-password", secret=source)


def password_mount() -> k8s.core.v1.VolumeMountArgs:
    """Where mariadbd, slurmdbd and check-database look for it."""
    return mount("database-password", PASSWORD_DIR, read_only=True)


def _mariadbd(args: DatabaseArgs, data: DataVolume) -> k8s.core.v1.ContainerArgs:
    memory = args.database.memory
    # The query of the user that slurmdbd is, over the network, in its database (images/database/settings.py).
    query = ["mariadb", "--defaults-file=/run/mysqld/probe.cnf", "--execute", "SELECT 1"]
    probe = k8s.core.v1.ProbeArgs(
        exec_=k8s.core.v1.ExecActionArgs(command=query), period_seconds=5, timeout_seconds=5, failure_threshold=3
    )
    return k8s.core.v1.ContainerArgs(
        name="mariadbd",
        image=args.image,
        command=program("mariadbd"),
        env=env(MEMORY_LIMIT=str(parse_bytes(memory)), **data.env),
        ports=[k8s.core.v1.ContainerPortArgs(name="mariadb", container_port=DATABASE_PORT)],
        readiness_probe=probe,
        startup_probe=starting(probe),
        volume_mounts=[mount("data", "/var/lib/mysql"), password_mount(), mount("run", "/run/mysqld")],
        resources=resources(cpu=args.database.cpu, memory=memory, memory_limit=memory, disk="20Gi"),
        termination_message_policy="FallbackToLogsOnError",
    )
