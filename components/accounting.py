"""Accounting: slurmdbd, which keeps the records of all jobs and the policy in a database, and the cluster's own one."""

from __future__ import annotations

import pulumi
import pulumi_kubernetes as k8s

from components.configuration import Configuration
from components.kit import pods, volumes, workloads
from components.kit.context import LOST_AFTER, STARTING, Scope, waits
from components.kit.volumes import DataVolume
from components.secrets import Secrets
from config.base import parse_bytes
from config.sections.accounting import Accounting as AccountingConfig
from config.sections.accounting import Database as DatabaseConfig
from config.sections.accounting import DatabaseTls
from slurm.conf import SLURMDBD, slurmdbd_conf
from slurm.names import ACCOUNTING, ACCOUNTING_HOST, DATABASE, DATABASE_PORT, SLURMDBD_PORT, content_name

CONFIG_DIR = "/config/slurmdbd"
SLURM_CONFIG_DIR = "/config/slurm"

CONVERTING = "4h"
"""For an update to wait for slurmdbd: one of a newer release converts the tables of years first, and answers then."""


DATA_CLAIM = "database-data"

SHUTDOWN_SECONDS = 120
"""For a clean end: changed pages are written out. Killed earlier, it recovers at its next start."""

PASSWORD_KEY = "password"  # noqa: S105  the key in the Secret
PASSWORD_DIR = "/secrets/database"  # noqa: S105  a directory


class Accounting(pulumi.ComponentResource):
    """A StatefulSet of one slurmdbd pod, its configuration and its Service, whose address survives the pod.

    The configuration is named after its content: slurmdbd reads it only at its start, so a change rolls the pod.
    slurmctld keeps its records in the state volume meanwhile.
    """

    service: k8s.core.v1.Service
    database_volumes: list[k8s.core.v1.VolumeArgs]
    """What a pod needs that runs check-database: slurmdbd.conf, the password and certificates."""
    database_mounts: list[k8s.core.v1.VolumeMountArgs]

    def __init__(
        self,
        name: str,
        scope: Scope,
        secrets: Secrets,
        configuration: Configuration,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """`configuration`: the users and groups that slurmdbd has to know, and slurm.conf for sacctmgr."""
        super().__init__("slurmstack:index:Accounting", name, None, opts)
        self._child = pulumi.ResourceOptions(parent=self)
        self._scope, self._secrets, self._configuration = scope, secrets, configuration
        conf, accounting = slurmdbd_conf(scope.config), scope.config.accounting
        self.conf = k8s.core.v1.ConfigMap(
            f"{name}-conf",
            metadata=scope.metadata(content_name(ACCOUNTING, conf), ACCOUNTING),
            data={SLURMDBD: conf},
            immutable=True,
            opts=workloads.named_by_content(self._child),
        )
        self.database_volumes = self._database_volumes(accounting)
        self.database_mounts = _database_mounts(accounting)
        self.service = workloads.service(
            f"{name}-service",
            scope,
            ACCOUNTING,
            {"slurmdbd": SLURMDBD_PORT},
            self._child,
            called=ACCOUNTING_HOST,
            only={"statefulset.kubernetes.io/pod-name": ACCOUNTING_HOST},
            unready=True,
        )
        self.stateful_set = self._create_stateful_set(name)
        self.register_outputs({"service": self.service.metadata})

    def _database_volumes(self, accounting: AccountingConfig) -> list[k8s.core.v1.VolumeArgs]:
        external = accounting.database.external
        conf = volumes.config_volume("slurmdbd-conf", self.conf.metadata.name)
        if external is None:
            return [conf, password_volume(self._secrets.database.metadata.name, PASSWORD_KEY)]
        tls = _tls_volumes(external.tls) if external.tls is not None else []
        return [conf, password_volume(external.password.name, external.password.key), *tls]

    def _create_stateful_set(self, name: str) -> k8s.apps.v1.StatefulSet:
        scope = self._scope
        pod = k8s.core.v1.PodSpecArgs(
            termination_grace_period_seconds=60,
            dns_config=scope.daemon_dns,
            init_containers=[pods.munge_sidecar(scope.image("accounting"))],
            containers=[_slurmdbd(scope, self.database_mounts)],
            volumes=[
                *pods.munge_volumes(self._secrets.munge.metadata.name),
                pods.jwt_volume(self._secrets.jwt.metadata.name),
                *self.database_volumes,
                self._configuration.files_as("config"),
                volumes.memory_dir("run"),
                volumes.memory_dir("own"),
            ],
        )
        placement = scope.cloud.placement("controller")
        return workloads.stateful_set(
            name,
            scope.metadata_of_slurm(ACCOUNTING, ACCOUNTING),
            scope.label_selector(ACCOUNTING),
            pods.pod_template(scope, ACCOUNTING, placement, pod, stays=True, knows_users=True, leaves_after=LOST_AFTER),
            scope.after_trial(self._child).merge(waits(CONVERTING)),
        )


def _tls_volumes(tls: DatabaseTls) -> list[k8s.core.v1.VolumeArgs]:
    found = []
    if tls.ca is not None:
        found.append(volumes.secret_volume("database-ca", tls.ca.name, files={tls.ca.key: "ca.crt"}))
    if tls.client is not None:
        found.append(volumes.secret_volume("database-client", tls.client))
    return found


def _database_mounts(accounting: AccountingConfig) -> list[k8s.core.v1.VolumeMountArgs]:
    """Where images/accounting/check_database.py looks for them."""
    mounts = [volumes.mount("slurmdbd-conf", CONFIG_DIR, read_only=True), password_mount()]
    tls = accounting.database.external.tls if accounting.database.external is not None else None
    if tls is not None and tls.ca is not None:
        mounts.append(volumes.mount("database-ca", "/secrets/database-ca", read_only=True))
    if tls is not None and tls.client is not None:
        mounts.append(volumes.mount("database-client", "/secrets/database-client", read_only=True))
    return mounts


def _slurmdbd(scope: Scope, database: list[k8s.core.v1.VolumeMountArgs]) -> k8s.core.v1.ContainerArgs:
    return k8s.core.v1.ContainerArgs(
        name="slurmdbd",
        image=scope.image("accounting"),
        command=pods.program("slurmdbd"),
        # For Slurm's own commands in this container: `kubectl exec slurmdbd-0 -c slurmdbd -- sacctmgr show user`.
        env=pods.env(SLURM_CONF=f"{SLURM_CONFIG_DIR}/slurm.conf"),
        **pods.serving("slurmdbd", SLURMDBD_PORT, pods.tcp_probe(SLURMDBD_PORT, period=5)),
        volume_mounts=[
            pods.munge_mount(),
            pods.jwt_mount(),
            *database,
            volumes.mount("config", SLURM_CONFIG_DIR, read_only=True),
            volumes.mount("run", "/run/slurmstack"),
            volumes.mount("own", "/run/slurmdbd"),
        ],
        resources=pods.resources(cpu=scope.config.accounting.cpu, memory=scope.config.accounting.memory),
        # What it says at its end, the database's refusal above all, is what a failed update shows.
        termination_message_policy="FallbackToLogsOnError",
    )


class Database(pulumi.ComponentResource):
    """A StatefulSet of one MariaDB pod, its claim and its Service, whose address survives the pod."""

    service: k8s.core.v1.Service

    def __init__(
        self,
        name: str,
        scope: Scope,
        database: DatabaseConfig,
        secrets: Secrets,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("slurmstack:index:Database", name, None, opts)
        self._child = pulumi.ResourceOptions(parent=self)
        self._volume = volumes.data_volume(
            f"{name}-data", scope, DATA_CLAIM, DATABASE,
            size=database.storage, storage_class=database.storage_class, shared=False, opts=self._child,
        )  # fmt: skip
        self.claim = self._volume.claim
        # There is only one: to cut slurmdbd off for a slow answer to the probe would help nobody.
        ports = {"mariadb": DATABASE_PORT}
        self.service = workloads.service(f"{name}-service", scope, DATABASE, ports, self._child, unready=True)
        self.stateful_set = self._create_stateful_set(name, scope, database, secrets)
        self.register_outputs({"service": self.service.metadata})

    def _create_stateful_set(
        self, name: str, scope: Scope, database: DatabaseConfig, secrets: Secrets
    ) -> k8s.apps.v1.StatefulSet:
        pod = k8s.core.v1.PodSpecArgs(
            termination_grace_period_seconds=SHUTDOWN_SECONDS,
            containers=[_mariadbd(scope, database, self._volume)],
            volumes=[
                volumes.claim_volume("data", self.claim.metadata.name),
                password_volume(secrets.database.metadata.name, PASSWORD_KEY),
                volumes.memory_dir("run"),
            ],
        )
        return workloads.stateful_set(
            name,
            scope.metadata(DATABASE, DATABASE),
            scope.label_selector(DATABASE),
            pods.pod_template(
                scope, DATABASE, scope.cloud.placement("controller"), pod, stays=True, leaves_after=LOST_AFTER
            ),
            scope.after_trial(self._child).merge(waits(STARTING)),
        )


def password_volume(secret: pulumi.Input[str], key: str) -> k8s.core.v1.VolumeArgs:
    """The password of slurmdbd's user in the database."""
    return volumes.secret_volume("database-password", secret, files={key: PASSWORD_KEY})


def password_mount() -> k8s.core.v1.VolumeMountArgs:
    """Where mariadbd, slurmdbd and check-database look for it."""
    return volumes.mount("database-password", PASSWORD_DIR, read_only=True)


def _mariadbd(scope: Scope, database: DatabaseConfig, data: DataVolume) -> k8s.core.v1.ContainerArgs:
    memory = database.memory
    # The query of the user that slurmdbd is, over the network, in its database (images/common/mariadb.py).
    query = ["mariadb", "--defaults-file=/run/mysqld/probe.cnf", "--execute", "SELECT 1"]
    return k8s.core.v1.ContainerArgs(
        name="mariadbd",
        image=scope.image("database"),
        command=pods.program("mariadbd"),
        env=pods.env(MEMORY_LIMIT=str(parse_bytes(memory)), **data.env),
        **pods.serving("mariadb", DATABASE_PORT, pods.exec_probe(*query, period=5, timeout=5)),
        volume_mounts=[volumes.mount("data", "/var/lib/mysql"), password_mount(), volumes.mount("run", "/run/mysqld")],
        resources=pods.resources(cpu=database.cpu, memory=memory, memory_limit=memory, disk="20Gi"),
        termination_message_policy="FallbackToLogsOnError",
    )
