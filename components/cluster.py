"""The whole Slurm cluster."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from components.accounting import Accounting, AccountingArgs
from components.clouds.base import CloudResources
from components.configuration import Configuration, ConfigurationArgs
from components.controller import Controller, ControllerArgs
from components.database import Database, DatabaseArgs
from components.health import Health, HealthArgs
from components.jail import Jail, JailArgs
from components.login import Login, LoginArgs
from components.mounts import Mount, MountArgs
from components.network_policies import NetworkPolicies, NetworkPoliciesArgs
from components.pods import SLURM_NODE_LABEL, Scope, recommended_labels
from components.policy import Policy, PolicyArgs
from components.rest import Rest, RestArgs
from components.secrets import Secrets, SecretsArgs
from components.topology import Topology, TopologyArgs
from components.users import Users, UsersArgs
from components.workers import WorkerPool, WorkerPoolArgs
from config.accounting import Database as DatabaseConfig
from config.cluster import ClusterConfig
from config.services import ImageRole
from slurm.accounting import own_database
from slurm.conf import render
from slurm.health import SETTINGS_FILE, TESTS_FILE, check_settings, node_test_settings, watch_environment
from slurm.images import DEFAULT_REGISTRY, image_reference, image_tag
from slurm.names import NODES_SERVICE
from slurm.policy import environment, policy_document
from slurm.settings import effective_settings
from slurm.slurmdbd import render_slurmdbd
from slurm.topology import uses_tree
from slurm.users import accounts, group_numbers


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
    accounting: Accounting | None
    """None where the stack file turns it off."""

    def __init__(self, name: str, args: SlurmClusterArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slurmstack:index:SlurmCluster", name, None, opts)
        config = args.config
        self._name = name
        self._args = args
        self._tag = config.images.tag or image_tag(config.slurm.version)
        self._outside = pulumi.ResourceOptions(parent=self)
        self.namespace = self._create_namespace()
        self._inside = pulumi.ResourceOptions(parent=self, deleted_with=self.namespace)
        self._scope = Scope(
            name=config.cluster.namespace,
            namespace=self.namespace.metadata.name,
            cluster_domain=config.cloud.cluster_domain,
            pull_secret=config.images.pull_secret,
            sssd=config.sssd,
            user_namespaces=config.cluster.user_namespaces,
        )
        self._create_nodes_service()
        self.secrets = self._create_secrets()
        self.jail = self._create_jail()
        self.mounts = [self._create_mount(mount) for mount in sorted(config.mounts)]
        self.users = self._create_users()
        self.configuration = self._create_configuration()
        self.accounting = self._create_accounting() if config.accounting.enabled else None
        self.controller = self._create_controller()
        if uses_tree(effective_settings(config)):
            self._create_topology()
        if self.accounting is not None:
            self._create_policy(self.accounting)
        self.health = self._create_health() if config.health.enabled else None
        self.pools = [self._create_pool(pool) for pool in config.worker_nodes]
        self.login = self._create_login()
        self.rest = self._create_rest() if config.rest.enabled else None
        if config.network_policies.enabled:
            policies = NetworkPoliciesArgs(scope=self._scope, config=config)
            NetworkPolicies(f"{name}-network-policies", policies, opts=self._inside)
        self.register_outputs({"namespace": self.namespace.metadata})

    def _image(self, role: ImageRole) -> str:
        registry = self._args.config.images.registry or DEFAULT_REGISTRY
        return image_reference(
            role, registry=registry, tag=self._tag, digest=self._args.config.images.digests.get(role)
        )

    def _create_namespace(self) -> k8s.core.v1.Namespace:
        # The workers' capability for the jail is what Pod Security calls privileged; saying so here keeps clusters that
        # enforce a stricter default from refusing the pods one by one.
        name = self._args.config.cluster.namespace
        labels = {**recommended_labels(name, "namespace"), "pod-security.kubernetes.io/enforce": "privileged"}
        return k8s.core.v1.Namespace(
            f"{self._name}-namespace",
            metadata=k8s.meta.v1.ObjectMetaArgs(name=name, labels=labels),
            opts=self._outside.merge(
                pulumi.ResourceOptions(
                    protect=self._args.config.protects_data, custom_timeouts=pulumi.CustomTimeouts(delete="30m")
                )
            ),
        )

    def _create_nodes_service(self) -> k8s.core.v1.Service:
        """The headless Service that gives every worker and login node a DNS name."""
        return k8s.core.v1.Service(
            f"{self._name}-nodes",
            metadata=self._scope.metadata(NODES_SERVICE, "nodes"),
            spec=k8s.core.v1.ServiceSpecArgs(
                cluster_ip="None", publish_not_ready_addresses=True, selector={SLURM_NODE_LABEL: "true"}
            ),
            opts=self._inside,
        )

    def _create_secrets(self) -> Secrets:
        args = SecretsArgs(scope=self._scope, protect=self._args.config.protects_data)
        return Secrets(f"{self._name}-secrets", args, opts=self._inside)

    def _create_jail(self) -> Jail:
        jail = self._args.config.jail
        args = JailArgs(
            scope=self._scope,
            cloud=self._args.cloud,
            size=jail.size,
            storage_class=jail.storage_class,
            image=self._image("jail"),
            version=self._tag,
            protect=self._args.config.protects_data,
            outside_namespace=self._outside,
        )
        return Jail(f"{self._name}-jail", args, opts=self._inside)

    def _create_mount(self, mount_name: str) -> Mount:
        args = MountArgs(
            scope=self._scope,
            cloud=self._args.cloud,
            mount=self._args.config.mounts[mount_name],
            protect=self._args.config.protects_data,
            outside_namespace=self._outside,
        )
        return Mount(f"{self._name}-mount-{mount_name}", mount_name, args, opts=self._inside)

    def _create_users(self) -> Users:
        args = UsersArgs(
            scope=self._scope,
            users=accounts(self._args.config.users, extra_keys=self._args.cloud.login_keys),
            groups=group_numbers(self._args.config.groups),
            image=self._image("jail"),
            jail=self.jail.volume,
            placement=self._args.cloud.placement("system"),
        )
        return Users(f"{self._name}-users", args, opts=self._inside)

    def _create_configuration(self) -> Configuration:
        args = ConfigurationArgs(
            scope=self._scope,
            files=render(self._args.config),
            image=self._image("controller"),
            placement=self._args.cloud.placement("system"),
        )
        return Configuration(f"{self._name}-configuration", args, opts=self._inside)

    def _create_accounting(self) -> Accounting:
        accounting = self._args.config.accounting
        if (database := own_database(self._args.config)) is not None:
            self._create_database(database)
        args = AccountingArgs(
            scope=self._scope,
            accounting=accounting,
            conf=render_slurmdbd(self._args.config),
            image=self._image("accounting"),
            placement=self._args.cloud.placement("controller"),
            munge_secret=self.secrets.munge.metadata.name,
            jwt_secret=self.secrets.jwt.metadata.name,
            database_secret=self.secrets.database.metadata.name,
            config_map=self.configuration.files.metadata.name,
        )
        return Accounting(f"{self._name}-accounting", args, opts=self._inside)

    def _create_database(self, database: DatabaseConfig) -> Database:
        args = DatabaseArgs(
            scope=self._scope,
            cloud=self._args.cloud,
            image=self._image("database"),
            database=database,
            password_secret=self.secrets.database.metadata.name,
            protect=self._args.config.protects_data,
            outside_namespace=self._outside,
        )
        return Database(f"{self._name}-database", args, opts=self._inside)

    def _create_controller(self) -> Controller:
        controller = self._args.config.controller
        args = ControllerArgs(
            scope=self._scope,
            cloud=self._args.cloud,
            image=self._image("controller"),
            cpu=controller.cpu,
            memory=controller.memory,
            storage=controller.storage,
            storage_class=controller.storage_class,
            munge_secret=self.secrets.munge.metadata.name,
            jwt_secret=self.secrets.jwt.metadata.name,
            config_map=self.configuration.files.metadata.name,
            protect=self._args.config.protects_data,
            outside_namespace=self._outside,
        )
        return Controller(f"{self._name}-controller", args, opts=self._inside)

    def _create_topology(self) -> Topology:
        args = TopologyArgs(scope=self._scope, account=self.controller.account, outside_namespace=self._outside)
        return Topology(f"{self._name}-topology", args, opts=self._inside)

    def _create_policy(self, accounting: Accounting) -> Policy:
        config = self._args.config
        args = PolicyArgs(
            scope=self._scope,
            document=policy_document(config),
            environment=environment(config),
            image=self._image("accounting"),
            placement=self._args.cloud.placement("system"),
            munge_secret=self.secrets.munge.metadata.name,
            configuration=self.configuration,
            accounting=accounting,
            after=self.users.job,
        )
        return Policy(f"{self._name}-policy", args, opts=self._inside)

    def _create_health(self) -> Health:
        config = self._args.config
        infiniband = {
            name for name, pool in config.worker_nodes.items() if self._args.cloud.worker_placement(name, pool).devices
        }
        args = HealthArgs(
            scope=self._scope,
            settings={
                SETTINGS_FILE: check_settings(config.health, infiniband),
                **({TESTS_FILE: node_test_settings(config, infiniband)} if config.health.tests.enabled else {}),
            },
            tests=config.health.tests.enabled,
            environment=watch_environment(config.health),
            machines=config.health.machines,
            image=self._image("controller"),
            placement=self._args.cloud.placement("system"),
            munge_secret=self.secrets.munge.metadata.name,
            config_map=self.configuration.files.metadata.name,
            outside_namespace=self._outside,
        )
        return Health(f"{self._name}-health", args, opts=self._inside)

    def _create_pool(self, pool_name: str) -> WorkerPool:
        pool = self._args.config.worker_nodes[pool_name]
        args = WorkerPoolArgs(
            scope=self._scope,
            pool=pool,
            image=self._image("worker"),
            cpu_request=pool.resources.cpu_request or self._args.cloud.worker_cpu_request(pool.resources.cpus),
            munge_secret=self.secrets.munge.metadata.name,
            jail=self.jail.volume,
            placement=self._args.cloud.worker_placement(pool_name, pool),
            mounts=self.mounts,
            health_settings=self.health.settings.metadata.name if self.health is not None else None,
            config_map=self.configuration.files.metadata.name,
        )
        return WorkerPool(f"{self._name}-pool-{pool_name}", pool_name, args, opts=self._inside)

    def _create_login(self) -> Login:
        args = LoginArgs(
            scope=self._scope,
            login=self._args.config.login,
            image=self._image("login"),
            munge_secret=self.secrets.munge.metadata.name,
            host_keys_secret=self.secrets.ssh_host_keys.metadata.name,
            jail=self.jail.volume,
            placement=self._args.cloud.placement("login"),
            annotations=self._args.cloud.login_annotations,
            mounts=self.mounts,
        )
        return Login(f"{self._name}-login", args, opts=self._inside)

    def _create_rest(self) -> Rest:
        args = RestArgs(
            scope=self._scope,
            rest=self._args.config.rest,
            image=self._image("rest"),
            config_map=self.configuration.files.metadata.name,
            seed=self.secrets.rest_seed,
            placement=self._args.cloud.placement("system"),
        )
        return Rest(f"{self._name}-rest", args, opts=self._inside)
