"""The whole Slurm cluster, and its configuration as Pulumi has it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pulumi
import pulumi_kubernetes as k8s
from pulumi.runtime.config import CONFIG, get_config_env, is_config_secret

from components.accounting import Accounting, Database
from components.backup import Backup, BackupArgs
from components.clouds.base import CloudResources
from components.configuration import Configuration, Topology
from components.controller import Controller, ControllerArgs
from components.elastic import Elastic
from components.exporter import Exporter, ExporterArgs
from components.health import Health, HealthArgs
from components.image_trial import ImageTrial
from components.jail import Jail, Mount
from components.kit import pods
from components.kit.context import Scope, recommended_labels
from components.login import Login
from components.monitoring import GrafanaDashboards, KubeState, Monitoring, PrometheusOperator
from components.network_policies import NetworkPolicies
from components.policy import Policy
from components.rest import Rest, RestArgs
from components.secrets import Secrets
from components.users import Users
from components.workers import WorkerPool, WorkerPoolArgs
from config import ConfigError, load_config
from config.cluster import ClusterConfig
from config.load import PROJECT, check_keys, encrypted_problem, plain
from config.sections.monitoring import Backup as BackupConfig
from config.sections.workers import WorkerPool as WorkerPoolConfig
from slurm.conf import effective_settings, uses_tree
from slurm.names import CONTROL, NODES_SERVICE, STACK


def stack_config() -> ClusterConfig:
    """Every `slurmstack:` key of the current stack, checked as a whole. Raises ConfigError with all problems.

    Pulumi's `Config` can only be asked for keys that one knows; a misspelt section would be overlooked. So the keys are
    taken from the runtime's own table, and only the values from `Config`.
    """
    prefix = f"{PROJECT}:"
    keys = {**get_config_env(), **CONFIG.get()}
    check_keys(keys)
    names = sorted(key[len(prefix) :] for key in keys if key.startswith(prefix))
    encrypted = [name for name in names if is_config_secret(prefix + name)]
    if encrypted:
        raise ConfigError(encrypted_problem(name) for name in encrypted)
    reader = pulumi.Config(PROJECT)
    return load_config({name: plain(reader.get(name)) for name in names})


PRIORITY = 1000
"""Above pods without a PriorityClass, which have 0, as workers are. Far below Kubernetes' own."""


class Priority(pulumi.ComponentResource):
    """What comes first where machines have no room for all: what the cluster cannot do without, then its workers.

    A PriorityClass for the pods of `FIRST`: of pods that wait they get room first, and kubelets evict them last.

    It ends no pod for others (`Never`): a class counts in the whole Kubernetes cluster, and whose pods may be ended
    there its administrator decides.
    """

    name: pulumi.Output[str]

    def __init__(self, name: str, cluster: str, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slurmstack:index:Priority", name, None, opts)
        made = k8s.scheduling.v1.PriorityClass(
            f"{name}-class",
            # Its name is shared by all clusters in one Kubernetes, so the namespace is in it.
            metadata=k8s.meta.v1.ObjectMetaArgs(
                name=f"{cluster}-{CONTROL}", labels=recommended_labels(cluster, CONTROL)
            ),
            value=PRIORITY,
            preemption_policy="Never",
            description="Slurm's daemons and login nodes",
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.name = made.metadata.apply(lambda metadata: str(metadata.name))
        self.register_outputs({})


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
        self._inside = inside = pulumi.ResourceOptions(parent=self, deleted_with=self.namespace)
        scope = Scope(
            config=config,
            namespace=self.namespace.metadata.name,
            cloud=args.cloud,
            root=self,
            first_class=self._create_priority(config),
        )
        trial = ImageTrial(f"{name}-images", scope, inside)
        scope = self._scope = replace(scope, tried=trial.job)
        self._create_nodes_service()
        self.secrets = Secrets(f"{name}-secrets", scope, inside)
        self.jail = Jail(f"{name}-jail", scope, inside)
        mounts = sorted(config.mounts.items())
        self.mounts = [Mount(f"{name}-mount-{key}", scope, key, mount, inside) for key, mount in mounts]
        self.users = Users(f"{name}-users", scope, self.jail.volume, inside)
        self.configuration = Configuration(f"{name}-configuration", scope, inside)
        self.accounting = self._create_accounting(config) if config.accounting.enabled else None
        self.controller = self._create_controller(config)
        if uses_tree(effective_settings(config)):
            Topology(f"{name}-topology", scope, self.controller.account, inside)
        if self.accounting is not None:
            Policy(
                f"{name}-policy",
                scope,
                secrets=self.secrets,
                configuration=self.configuration,
                accounting=self.accounting,
                users=self.users,
                opts=inside,
            )
        checks = HealthArgs(scope=scope, config=config, secrets=self.secrets, configuration=self.configuration)
        self.health = Health(f"{name}-health", checks, inside) if config.health.enabled else None
        Elastic(f"{name}-elastic", scope, self.secrets, self.configuration, opts=inside)
        self.pools = {pool: self._create_pool(pool, settings) for pool, settings in config.worker_nodes.items()}
        self.login = Login(f"{name}-login", scope, self.secrets, self.jail.volume, self.mounts, opts=inside)
        self.rest = self._create_rest(config) if config.rest.enabled else None
        if config.monitoring.is_on:
            self._create_monitoring(config)
        if config.backup is not None:
            self._create_backup(config, config.backup)
        if config.network_policies.enabled:
            NetworkPolicies(f"{name}-network-policies", scope, inside)
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

    def _create_priority(self, config: ClusterConfig) -> pulumi.Output[str] | None:
        """None where the stack file names a class for all pods, which then are alike."""
        if config.cluster.priority_class is not None:
            return None
        child = pulumi.ResourceOptions(parent=self)
        return Priority(f"{self._name}-priority", config.cluster.namespace, child).name

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

    def _create_accounting(self, config: ClusterConfig) -> Accounting:
        scope, secrets = self._scope, self.secrets
        if (database := config.accounting.own_database) is not None:
            Database(f"{self._name}-database", scope, database, secrets, self._inside)
        return Accounting(f"{self._name}-accounting", scope, secrets, self.configuration, self._inside)

    def _create_controller(self, config: ClusterConfig) -> Controller:
        args = ControllerArgs(
            scope=self._scope,
            controller=config.controller,
            secrets=self.secrets,
            configuration=self.configuration,
            after=[self.accounting.stateful_set] if self.accounting is not None else [],
        )
        return Controller(f"{self._name}-controller", args, self._inside)

    def _create_monitoring(self, config: ClusterConfig) -> None:
        name, scope, inside, monitoring = self._name, self._scope, self._inside, config.monitoring
        args = ExporterArgs(scope=scope, secrets=self.secrets, configuration=self.configuration, config=config)
        Exporter(f"{name}-exporter", args, inside)
        if monitoring.install:
            Monitoring(f"{name}-monitoring", scope, inside)
        if monitoring.has_kube_state:
            KubeState(f"{name}-kube-state", scope, inside)
        if monitoring.existing is not None:
            PrometheusOperator(f"{name}-prometheus-operator", scope, inside)
        if monitoring.has_dashboards:
            GrafanaDashboards(f"{name}-grafana", scope, inside)

    def _create_backup(self, config: ClusterConfig, backup: BackupConfig) -> None:
        args = BackupArgs(
            scope=self._scope,
            backup=backup,
            cluster_name=config.slurm.cluster_name,
            secrets=self.secrets,
            controller=self.controller,
            jail=self.jail,
            users=self.users,
            accounting=self.accounting,
        )
        Backup(f"{self._name}-backup", args, self._inside)

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
        )
        return WorkerPool(f"{self._name}-pool-{name}", args, self._inside)

    def _create_rest(self, config: ClusterConfig) -> Rest:
        args = RestArgs(
            scope=self._scope,
            rest=config.rest,
            dashboard=config.dashboard.enabled,
            secrets=self.secrets,
            configuration=self.configuration,
        )
        return Rest(f"{self._name}-rest", args, self._inside)
