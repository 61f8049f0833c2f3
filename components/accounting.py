"""Accounting: slurmdbd, which keeps the records of all jobs and the policy in a database."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from components.configuration import Configuration
from components.database import PASSWORD_KEY, password_mount, password_volume
from components.kit.context import Scope, waits
from components.kit.jobs import named_by_content
from components.kit.workload import (
    config_volume,
    empty_dir,
    env,
    jwt_mount,
    jwt_volume,
    mount,
    munge_mount,
    munge_sidecar,
    munge_volumes,
    pod_template,
    program,
    resources,
    secret_volume,
    service_port,
    starting,
    stateful_set,
    tcp_probe,
)
from components.secrets import Secrets
from components.sssd import with_sssd
from config.sections.accounting import Accounting as AccountingConfig
from config.sections.accounting import DatabaseTls
from slurm.conf import SLURMDBD
from slurm.content_names import content_name
from slurm.names import ACCOUNTING, ACCOUNTING_HOST, SLURMDBD_PORT

CONFIG_DIR = "/config/slurmdbd"
SLURM_CONFIG_DIR = "/config/slurm"

CONVERTING = "4h"
"""For an update to wait for slurmdbd: one of a newer release converts the tables of years first, and answers then."""


@dataclass(frozen=True, kw_only=True)
class AccountingArgs:
    """Inputs of `Accounting`."""

    scope: Scope
    accounting: AccountingConfig
    conf: str
    """slurmdbd.conf without the password."""
    secrets: Secrets
    """The password in it is that of the cluster's own database; an external one has a Secret of its own."""
    configuration: Configuration
    """Slurm's files: the users and groups that slurmdbd has to know, and slurm.conf for sacctmgr."""


class Accounting(pulumi.ComponentResource):
    """A StatefulSet of one slurmdbd pod, its configuration and its Service, whose address survives the pod.

    The configuration is named after its content: slurmdbd reads it only at its start, so a change rolls the pod.
    slurmctld keeps its records in the state volume meanwhile.
    """

    service: k8s.core.v1.Service
    database_volumes: list[k8s.core.v1.VolumeArgs]
    """What a pod needs that runs check-database: slurmdbd.conf, the password and certificates."""
    database_mounts: list[k8s.core.v1.VolumeMountArgs]

    def __init__(self, name: str, args: AccountingArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slurmstack:index:Accounting", name, None, opts)
        self._child = pulumi.ResourceOptions(parent=self)
        self.conf = k8s.core.v1.ConfigMap(
            f"{name}-conf",
            metadata=args.scope.metadata(content_name(ACCOUNTING, args.conf), ACCOUNTING),
            data={SLURMDBD: args.conf},
            immutable=True,
            opts=named_by_content(self._child),
        )
        self.database_volumes = self._database_volumes(args)
        self.database_mounts = _database_mounts(args.accounting)
        self.service = self._create_service(name, args.scope)
        self.stateful_set = self._create_stateful_set(name, args)
        self.register_outputs({"service": self.service.metadata})

    def _database_volumes(self, args: AccountingArgs) -> list[k8s.core.v1.VolumeArgs]:
        external = args.accounting.database.external
        volumes = [config_volume("slurmdbd-conf", self.conf.metadata.name)]
        if external is None:
            return [*volumes, password_volume(args.secrets.database.metadata.name, PASSWORD_KEY)]
        volumes.append(password_volume(external.password.name, external.password.key))
        return [*volumes, *(_tls_volumes(external.tls) if external.tls is not None else [])]

    def _create_service(self, name: str, scope: Scope) -> k8s.core.v1.Service:
        return k8s.core.v1.Service(
            f"{name}-service",
            metadata=scope.metadata(ACCOUNTING_HOST, ACCOUNTING),
            spec=k8s.core.v1.ServiceSpecArgs(
                type="ClusterIP",
                selector={**scope.selector(ACCOUNTING), "statefulset.kubernetes.io/pod-name": ACCOUNTING_HOST},
                publish_not_ready_addresses=True,
                ports=[service_port("slurmdbd", SLURMDBD_PORT)],
            ),
            opts=self._child,
        )

    def _create_stateful_set(self, name: str, args: AccountingArgs) -> k8s.apps.v1.StatefulSet:
        scope = args.scope
        image = scope.image("accounting")
        pod = k8s.core.v1.PodSpecArgs(
            termination_grace_period_seconds=60,
            init_containers=[munge_sidecar(image)],
            containers=[_slurmdbd(args, self.database_mounts)],
            volumes=[
                *munge_volumes(args.secrets.munge.metadata.name),
                jwt_volume(args.secrets.jwt.metadata.name),
                *self.database_volumes,
                args.configuration.files_as("config"),
                empty_dir("run", medium="Memory", size_limit="64Mi"),
                empty_dir("own", medium="Memory", size_limit="64Mi"),
            ],
        )
        placement = scope.cloud.placement("controller")
        return stateful_set(
            name,
            scope.metadata_of_slurm(ACCOUNTING, ACCOUNTING),
            scope.label_selector(ACCOUNTING),
            pod_template(scope, scope.labels(ACCOUNTING), placement, with_sssd(scope, pod, image), stays=True),
            self._child.merge(waits(CONVERTING)),
        )


def _tls_volumes(tls: DatabaseTls) -> list[k8s.core.v1.VolumeArgs]:
    volumes = []
    if tls.ca is not None:
        volumes.append(secret_volume("database-ca", tls.ca.name, files={tls.ca.key: "ca.crt"}))
    if tls.client is not None:
        volumes.append(secret_volume("database-client", tls.client))
    return volumes


def _database_mounts(accounting: AccountingConfig) -> list[k8s.core.v1.VolumeMountArgs]:
    """Where images/accounting/check_database.py looks for them."""
    mounts = [mount("slurmdbd-conf", CONFIG_DIR, read_only=True), password_mount()]
    tls = accounting.database.external.tls if accounting.database.external is not None else None
    if tls is not None and tls.ca is not None:
        mounts.append(mount("database-ca", "/secrets/database-ca", read_only=True))
    if tls is not None and tls.client is not None:
        mounts.append(mount("database-client", "/secrets/database-client", read_only=True))
    return mounts


def _slurmdbd(args: AccountingArgs, database: list[k8s.core.v1.VolumeMountArgs]) -> k8s.core.v1.ContainerArgs:
    return k8s.core.v1.ContainerArgs(
        name="slurmdbd",
        image=args.scope.image("accounting"),
        command=program("slurmdbd"),
        ports=[k8s.core.v1.ContainerPortArgs(name="slurmdbd", container_port=SLURMDBD_PORT)],
        # For Slurm's own commands in this container: `kubectl exec slurmdbd-0 -c slurmdbd -- sacctmgr show user`.
        env=env(SLURM_CONF=f"{SLURM_CONFIG_DIR}/slurm.conf"),
        readiness_probe=tcp_probe(SLURMDBD_PORT, period=5),
        startup_probe=starting(tcp_probe(SLURMDBD_PORT, period=5)),
        volume_mounts=[
            munge_mount(),
            jwt_mount(),
            *database,
            mount("config", SLURM_CONFIG_DIR, read_only=True),
            mount("run", "/run/slurmstack"),
            mount("own", "/run/slurmdbd"),
        ],
        resources=resources(cpu=args.accounting.cpu, memory=args.accounting.memory),
        # What it says at its end, the database's refusal above all, is what a failed update shows.
        termination_message_policy="FallbackToLogsOnError",
    )
