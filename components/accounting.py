"""Accounting: slurmdbd, which keeps the records of all jobs and the policy in a database."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from components.clouds.base import Placement
from components.database import PASSWORD_KEY, password_mount, password_volume
from components.jobs import named_by_content
from components.pods import (
    Scope,
    children_of,
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
    starting,
    tcp_probe,
    waits,
)
from components.sssd import with_sssd
from config.accounting import Accounting as AccountingConfig
from config.accounting import DatabaseTls
from slurm.names import ACCOUNTING, ACCOUNTING_HOST, NODES_SERVICE, SLURMDBD_PORT
from slurm.naming import content_name
from slurm.slurmdbd import FILE

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
    image: str
    placement: Placement
    munge_secret: pulumi.Input[str]
    jwt_secret: pulumi.Input[str]
    database_secret: pulumi.Input[str]
    """The password of the cluster's own database; an external one has a Secret of its own."""
    config_map: pulumi.Input[str]
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
        self._child = children_of(self, opts)
        self.conf = k8s.core.v1.ConfigMap(
            f"{name}-conf",
            metadata=args.scope.metadata(content_name(ACCOUNTING, args.conf), ACCOUNTING),
            data={FILE: args.conf},
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
        conf = k8s.core.v1.ConfigMapVolumeSourceArgs(name=self.conf.metadata.name)
        volumes = [k8s.core.v1.VolumeArgs(name="slurmdbd-conf", config_map=conf)]
        if external is None:
            return [*volumes, password_volume(args.database_secret, PASSWORD_KEY)]
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
                ports=[k8s.core.v1.ServicePortArgs(name="slurmdbd", port=SLURMDBD_PORT, target_port=SLURMDBD_PORT)],
            ),
            opts=self._child,
        )

    def _create_stateful_set(self, name: str, args: AccountingArgs) -> k8s.apps.v1.StatefulSet:
        scope = args.scope
        config = k8s.core.v1.ConfigMapVolumeSourceArgs(name=args.config_map)
        pod = k8s.core.v1.PodSpecArgs(
            enable_service_links=False,
            image_pull_secrets=scope.pull_secrets,
            termination_grace_period_seconds=60,
            init_containers=[munge_sidecar(args.image)],
            containers=[_slurmdbd(args, self.database_mounts)],
            volumes=[
                *munge_volumes(args.munge_secret),
                jwt_volume(args.jwt_secret),
                *self.database_volumes,
                k8s.core.v1.VolumeArgs(name="config", config_map=config),
                empty_dir("run", medium="Memory", size_limit="64Mi"),
                empty_dir("own", medium="Memory", size_limit="64Mi"),
            ],
        )
        template = pod_template(scope, scope.labels(ACCOUNTING), args.placement, with_sssd(scope, pod, args.image))
        return k8s.apps.v1.StatefulSet(
            f"{name}-pods",
            metadata=scope.metadata(ACCOUNTING, ACCOUNTING),
            spec=k8s.apps.v1.StatefulSetSpecArgs(
                replicas=1,
                service_name=NODES_SERVICE,
                selector=k8s.meta.v1.LabelSelectorArgs(match_labels=scope.selector(ACCOUNTING)),
                template=template,
            ),
            opts=self._child.merge(waits(CONVERTING)),
        )


def _tls_volumes(tls: DatabaseTls) -> list[k8s.core.v1.VolumeArgs]:
    volumes = []
    if tls.ca is not None:
        items = [k8s.core.v1.KeyToPathArgs(key=tls.ca.key, path="ca.crt")]
        source = k8s.core.v1.SecretVolumeSourceArgs(secret_name=tls.ca.name, default_mode=0o400, items=items)
        volumes.append(k8s.core.v1.VolumeArgs(name="database-ca", secret=source))
    if tls.client is not None:
        source = k8s.core.v1.SecretVolumeSourceArgs(secret_name=tls.client, default_mode=0o400)
        volumes.append(k8s.core.v1.VolumeArgs(name="database-client", secret=source))
    return volumes


def _database_mounts(accounting: AccountingConfig) -> list[k8s.core.v1.VolumeMountArgs]:
    """Where images/accounting/conf.py looks for them."""
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
        image=args.image,
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
