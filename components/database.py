"""The cluster's own database: MariaDB for slurmdbd, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from components.kit import pods, volumes, workloads
from components.kit.context import STARTING, Scope, waits
from components.kit.volumes import DataVolume
from components.secrets import Secrets
from config.base import parse_bytes
from config.sections.accounting import Database as DatabaseConfig
from slurm.names import DATABASE, DATABASE_PORT

DATA_CLAIM = "database-data"

SHUTDOWN_SECONDS = 120
"""For a clean end: changed pages are written out. Killed earlier, it recovers at its next start."""

PASSWORD_KEY = "password"  # noqa: S105  the key in the Secret
PASSWORD_DIR = "/secrets/database"  # noqa: S105  a directory


@dataclass(frozen=True, kw_only=True)
class DatabaseArgs:
    """Inputs of `Database`."""

    scope: Scope
    database: DatabaseConfig
    secrets: Secrets


class Database(pulumi.ComponentResource):
    """A StatefulSet of one MariaDB pod, its claim and its Service, whose address survives the pod."""

    service: k8s.core.v1.Service

    def __init__(self, name: str, args: DatabaseArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slurmstack:index:Database", name, None, opts)
        self._child = pulumi.ResourceOptions(parent=self)
        database = args.database
        self._volume = volumes.data_volume(
            f"{name}-data", args.scope, DATA_CLAIM, DATABASE,
            size=database.storage, storage_class=database.storage_class, shared=False, opts=self._child,
        )  # fmt: skip
        self.claim = self._volume.claim
        # There is only one: to cut slurmdbd off for a slow answer to the probe would help nobody.
        ports = {"mariadb": DATABASE_PORT}
        self.service = workloads.service(f"{name}-service", args.scope, DATABASE, ports, self._child, unready=True)
        self.stateful_set = self._create_stateful_set(name, args)
        self.register_outputs({"service": self.service.metadata})

    def _create_stateful_set(self, name: str, args: DatabaseArgs) -> k8s.apps.v1.StatefulSet:
        scope = args.scope
        pod = k8s.core.v1.PodSpecArgs(
            termination_grace_period_seconds=SHUTDOWN_SECONDS,
            containers=[_mariadbd(args, self._volume)],
            volumes=[
                volumes.claim_volume("data", self.claim.metadata.name),
                password_volume(args.secrets.database.metadata.name, PASSWORD_KEY),
                volumes.memory_dir("run"),
            ],
        )
        return workloads.stateful_set(
            name,
            scope.metadata(DATABASE, DATABASE),
            scope.label_selector(DATABASE),
            pods.pod_template(scope, DATABASE, scope.cloud.placement("controller"), pod, stays=True),
            scope.after_trial(self._child).merge(waits(STARTING)),
        )


def password_volume(secret: pulumi.Input[str], key: str) -> k8s.core.v1.VolumeArgs:
    """The password of slurmdbd's user in the database."""
    return volumes.secret_volume("database-password", secret, files={key: PASSWORD_KEY})


def password_mount() -> k8s.core.v1.VolumeMountArgs:
    """Where mariadbd, slurmdbd and check-database look for it."""
    return volumes.mount("database-password", PASSWORD_DIR, read_only=True)


def _mariadbd(args: DatabaseArgs, data: DataVolume) -> k8s.core.v1.ContainerArgs:
    memory = args.database.memory
    # The query of the user that slurmdbd is, over the network, in its database (images/common/mariadb.py).
    query = ["mariadb", "--defaults-file=/run/mysqld/probe.cnf", "--execute", "SELECT 1"]
    return k8s.core.v1.ContainerArgs(
        name="mariadbd",
        image=args.scope.image("database"),
        command=pods.program("mariadbd"),
        env=pods.env(MEMORY_LIMIT=str(parse_bytes(memory)), **data.env),
        **pods.serving("mariadb", DATABASE_PORT, pods.exec_probe(*query, period=5, timeout=5)),
        volume_mounts=[volumes.mount("data", "/var/lib/mysql"), password_mount(), volumes.mount("run", "/run/mysqld")],
        resources=pods.resources(cpu=args.database.cpu, memory=memory, memory_limit=memory, disk="20Gi"),
        termination_message_policy="FallbackToLogsOnError",
    )
