"""The whole Slurm cluster."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from components.accounting import Accounting, AccountingArgs
from components.backup import Backup, BackupArgs
from components.clouds.base import CloudResources
from components.configuration import Configuration, ConfigurationArgs
from components.controller import Controller, ControllerArgs
from components.database import Database, DatabaseArgs
from components.elastic import Elastic, ElasticArgs
from components.exporter import Exporter, ExporterArgs
from components.grafana import GrafanaDashboards
from components.health import Health, HealthArgs
from components.image_trial import ImageTrial, ImageTrialArgs
from components.jail import Jail, JailArgs
from components.kit import pods
from components.kit.context import ClusterArgs, Scope, recommended_labels
from components.kube_state import KubeState, KubeStateArgs
from components.log_shipping import LogShipping
from components.login import Login, LoginArgs
from components.monitoring import Monitoring
from components.mounts import Mount, MountArgs
from components.network_policies import NetworkPolicies
from components.policy import Policy, PolicyArgs
from components.priority import FIRST, Priority, PriorityArgs
from components.prometheus_operator import PrometheusOperator
from components.rest import Rest, RestArgs
from components.secrets import Secrets, SecretsArgs
from components.topology import Topology, TopologyArgs
from components.users import Users, UsersArgs
from components.workers import WorkerPool, WorkerPoolArgs
from config.cluster import ClusterConfig
from config.sections.storage import Mount as MountConfig
from config.sections.workers import WorkerPool as WorkerPoolConfig
from slurm.conf import effective_settings, render, slurmdbd_conf, uses_tree
from slurm.images import image_tags
from slurm.local_cluster import KUBE_STATE_IMAGE
from slurm.names import NODES_SERVICE, STACK


@dataclass(frozen=True, kw_only=True)
class SlurmClusterArgs:
    """Inputs of `SlurmCluster`."""

    config: ClusterConfig
    cloud: CloudResources


class SlurmCluster(pulumi.ComponentResource):
    """One Slurm cluster in one namespace.

    Everything in the namespace has `deleted_with` it. The number of resources depends on the number of pools, never on
    the number of nodes.
    """

    namespace: k8s.core.v1.Namespace
    login: Login
    secrets: Secrets
    rest: Rest | None
    """None where the stack file does not ask for it; so with accounting and health, which it may turn off."""

    def __init__(self, name: str, args: SlurmClusterArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slurmstack:index:SlurmCluster", name, None, opts)
        config = args.config
        self._name = name
        self.namespace = self._create_namespace(config)
        self._inside = pulumi.ResourceOptions(parent=self, deleted_with=self.namespace)
        scope = self._create_scope(config, args.cloud)
        trial = ImageTrial(f"{name}-images", ImageTrialArgs(scope=scope, config=config), self._inside)
        scope = self._scope = replace(scope, tried=trial.job)
        self._job_metrics, self._rolling = config.monitoring.is_on, config.rolling
        self._create_nodes_service()
        self.secrets = Secrets(f"{name}-secrets", SecretsArgs(scope=scope), self._inside)
        self.jail = Jail(
            f"{name}-jail", JailArgs(scope=scope, jail=config.jail, release=config.slurm.version), self._inside
        )
        self.mounts = [self._create_mount(mount, settings) for mount, settings in sorted(config.mounts.items())]
        users = UsersArgs(scope=scope, config=config, jail=self.jail.volume)
        self.users = Users(f"{name}-users", users, self._inside)
        files = ConfigurationArgs(scope=scope, files=render(config))
        self.configuration = Configuration(f"{name}-configuration", files, self._inside)
        self.accounting = self._create_accounting(config) if config.accounting.enabled else None
        self.controller = self._create_controller(config)
        if uses_tree(effective_settings(config)):
            rights = TopologyArgs(scope=scope, account=self.controller.account)
            Topology(f"{name}-topology", rights, self._inside)
        if self.accounting is not None:
            self._create_policy(config, self.accounting)
        self.health = self._create_health(config) if config.health.enabled else None
        self._create_elastic(config)
        self.pools = {pool: self._create_pool(pool, settings) for pool, settings in config.worker_nodes.items()}
        self.login = self._create_login(config)
        self.rest = self._create_rest(config) if config.rest.enabled else None
        if config.monitoring.is_on:
            self._create_exporter(config)
            self._create_monitoring(config)
        if config.backup is not None:
            saved = BackupArgs(
                scope=scope,
                backup=config.backup,
                cluster_name=config.slurm.cluster_name,
                secrets=self.secrets,
                controller=self.controller,
                jail=self.jail,
                users=self.users,
                accounting=self.accounting,
            )
            Backup(f"{name}-backup", saved, self._inside)
        whole = ClusterArgs(scope=scope, config=config)
        if config.logs.otlp is not None:
            LogShipping(f"{name}-logs", whole, self._inside)
        if config.network_policies.enabled:
            NetworkPolicies(f"{name}-network-policies", whole, self._inside)
        self.register_outputs(self.outputs)

    @property
    def outputs(self) -> dict[str, pulumi.Output[Any]]:
        """What the cluster's users need, by the names that the stack exports it under. None of it is secret."""
        found: dict[str, pulumi.Output[Any]] = {
            "namespace": self.namespace.metadata.name,
            "login_service": self.login.service.metadata.name,
            "ssh_host_key": self.secrets.host_public_key,
        }
        if self.rest is not None:
            found["rest"] = self.rest.url
            if self.rest.authority is not None:
                found["rest_ca"] = self.rest.authority
        return found

    def _create_scope(self, config: ClusterConfig, cloud: CloudResources) -> Scope:
        return Scope(
            name=config.cluster.namespace,
            namespace=self.namespace.metadata.name,
            cluster_domain=config.cloud.cluster_domain,
            cloud=cloud,
            images=config.images,
            tags=image_tags(config.slurm.version, config.images),
            release=config.slurm.version,
            protect=config.protects_data,
            root=self,
            sssd=config.sssd,
            user_namespaces=config.cluster.user_namespaces,
            priority_class=config.cluster.priority_class,
            first=FIRST,
            first_class=self._create_priority(config),
        )

    def _create_priority(self, config: ClusterConfig) -> pulumi.Output[str] | None:
        """None where the stack file names a class for all pods, which then are alike."""
        if config.cluster.priority_class is not None:
            return None
        args = PriorityArgs(cluster=config.cluster.namespace)
        return Priority(f"{self._name}-priority", args, pulumi.ResourceOptions(parent=self)).name

    def _create_namespace(self, config: ClusterConfig) -> k8s.core.v1.Namespace:
        # The workers' capability for the jail is what Pod Security calls privileged; saying so here keeps clusters that
        # enforce a stricter default from refusing the pods one by one.
        name = config.cluster.namespace
        labels = {**recommended_labels(name, "namespace"), "pod-security.kubernetes.io/enforce": "privileged"}
        made_by = {STACK: pulumi.get_stack()}  # a wrong stack file, or one with a wrong context, is told by it
        return k8s.core.v1.Namespace(
            f"{self._name}-namespace",
            metadata=k8s.meta.v1.ObjectMetaArgs(name=name, labels=labels, annotations=made_by),
            opts=pulumi.ResourceOptions(
                parent=self, protect=config.protects_data, custom_timeouts=pulumi.CustomTimeouts(delete="30m")
            ),
        )

    def _create_nodes_service(self) -> k8s.core.v1.Service:
        """The headless Service that gives every worker and login node a DNS name."""
        return k8s.core.v1.Service(
            f"{self._name}-nodes",
            metadata=self._scope.metadata(NODES_SERVICE, "nodes"),
            spec=k8s.core.v1.ServiceSpecArgs(
                cluster_ip="None", publish_not_ready_addresses=True, selector={pods.SLURM_NODE_LABEL: "true"}
            ),
            opts=self._inside,
        )

    def _create_mount(self, name: str, mount: MountConfig) -> Mount:
        args = MountArgs(scope=self._scope, name=name, mount=mount)
        return Mount(f"{self._name}-mount-{name}", args, self._inside)

    def _create_accounting(self, config: ClusterConfig) -> Accounting:
        if (database := config.accounting.own_database) is not None:
            own = DatabaseArgs(scope=self._scope, database=database, secrets=self.secrets)
            Database(f"{self._name}-database", own, self._inside)
        args = AccountingArgs(
            scope=self._scope,
            accounting=config.accounting,
            conf=slurmdbd_conf(config),
            secrets=self.secrets,
            configuration=self.configuration,
        )
        return Accounting(f"{self._name}-accounting", args, self._inside)

    def _create_controller(self, config: ClusterConfig) -> Controller:
        args = ControllerArgs(
            scope=self._scope,
            controller=config.controller,
            secrets=self.secrets,
            configuration=self.configuration,
            after=[self.accounting.stateful_set] if self.accounting is not None else [],
        )
        return Controller(f"{self._name}-controller", args, self._inside)

    def _create_policy(self, config: ClusterConfig, accounting: Accounting) -> Policy:
        args = PolicyArgs(
            scope=self._scope,
            config=config,
            secrets=self.secrets,
            configuration=self.configuration,
            accounting=accounting,
            users=self.users,
        )
        return Policy(f"{self._name}-policy", args, self._inside)

    def _create_health(self, config: ClusterConfig) -> Health:
        args = HealthArgs(scope=self._scope, config=config, secrets=self.secrets, configuration=self.configuration)
        return Health(f"{self._name}-health", args, self._inside)

    def _create_elastic(self, config: ClusterConfig) -> Elastic:
        args = ElasticArgs(
            scope=self._scope,
            secrets=self.secrets,
            configuration=self.configuration,
            pools=config.has_elastic_pools,
        )
        return Elastic(f"{self._name}-elastic", args, self._inside)

    def _create_exporter(self, config: ClusterConfig) -> Exporter:
        args = ExporterArgs(
            scope=self._scope,
            secrets=self.secrets,
            configuration=self.configuration,
            config=config,
        )
        return Exporter(f"{self._name}-exporter", args, self._inside)

    def _create_monitoring(self, config: ClusterConfig) -> None:
        name, scope, monitoring = self._name, self._scope, config.monitoring
        whole = ClusterArgs(scope=scope, config=config)
        if monitoring.install:
            Monitoring(f"{name}-monitoring", whole, self._inside)
        if monitoring.has_kube_state:
            image = monitoring.kube_state_image or KUBE_STATE_IMAGE
            KubeState(f"{name}-kube-state", KubeStateArgs(scope=scope, image=image), self._inside)
        if monitoring.existing is not None:
            PrometheusOperator(f"{name}-prometheus-operator", whole, self._inside)
        if monitoring.has_dashboards:
            GrafanaDashboards(f"{name}-grafana", whole, self._inside)

    def _create_pool(self, name: str, pool: WorkerPoolConfig) -> WorkerPool:
        args = WorkerPoolArgs(
            scope=self._scope,
            name=name,
            pool=pool,
            secrets=self.secrets,
            jail=self.jail.volume,
            mounts=self.mounts,
            health=self.health,
            configuration=self.configuration,
            rolling=self._rolling,
            job_metrics=self._job_metrics,
        )
        return WorkerPool(f"{self._name}-pool-{name}", args, self._inside)

    def _create_login(self, config: ClusterConfig) -> Login:
        args = LoginArgs(
            scope=self._scope,
            login=config.login,
            secrets=self.secrets,
            jail=self.jail.volume,
            mounts=self.mounts,
        )
        return Login(f"{self._name}-login", args, self._inside)

    def _create_rest(self, config: ClusterConfig) -> Rest:
        args = RestArgs(
            scope=self._scope,
            rest=config.rest,
            dashboard=config.dashboard.enabled,
            secrets=self.secrets,
            configuration=self.configuration,
        )
        return Rest(f"{self._name}-rest", args, self._inside)
