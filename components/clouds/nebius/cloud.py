"""The Nebius cloud of one cluster: everything below Slurm."""

from __future__ import annotations

from collections.abc import Mapping

import pulumi
import pulumi_kubernetes as k8s

from components.clouds.base import CloudResources, Placement, StaticVolumeArgs, host_volume, kubernetes_provider
from components.clouds.nebius import resources
from components.clouds.nebius.gpu_stack import RDMA_RESOURCE, GpuStack
from components.clouds.nebius.node_groups import (
    NodeGroupsArgs,
    create_role_groups,
    create_worker_groups,
    role_placement,
    worker_placement,
)
from config.cluster import ClusterConfig
from config.nebius.needs import filesystems_of
from config.sections.cloud import NebiusCloud as CloudConfig
from config.sections.cloud import Role
from config.sections.workers import WorkerPool


class NebiusCloud(pulumi.ComponentResource, CloudResources):
    """Network, Managed Kubernetes, node groups, GPU clusters, shared file systems and addresses in one project.

    The number of resources depends on the number of pools and of file systems, and on the number of nodes only by one
    node group for each hundred.
    """

    volume_filesystem: str | None = "virtiofs"

    def __init__(
        self, name: str, config: ClusterConfig, cloud: CloudConfig, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        """`cloud`: the section of the configuration that is this cloud's."""
        super().__init__("slurmstack:index:NebiusCloud", name, None, opts)
        self._config, self._cloud = config, cloud
        self.exports: dict[str, pulumi.Input[str]] = {}
        self._scope = resources.CloudScope(
            component=self,
            project=cloud.project_id,
            prefix=cloud.prefix(config.cluster.namespace),
            protects_data=config.protects_data and not cloud.allow_replacement,
        )
        self._subnet = cloud.subnet_id or resources.create_subnet(self._scope).id
        self._cluster = resources.create_cluster(self._scope, cloud.kubernetes, self._subnet)
        self._filesystems = self._create_filesystems()
        self._groups = self._create_node_groups()
        self.provider = self._create_kubernetes_provider()
        self._create_gpu_stack()
        self.login_annotations = self._create_login_address()
        self.register_outputs({**self.exports})

    def _create_filesystems(self) -> Mapping[str, pulumi.Input[str]]:
        wanted = filesystems_of(self._config)
        made = resources.create_filesystems(self._scope, wanted, allow_replacement=self._cloud.allow_replacement)
        self.exports |= {f"filesystem_{tag.replace('-', '_')}": id_ for tag, id_ in made.items()}
        return made

    def _create_node_groups(self) -> Mapping[str, list[pulumi.Resource]]:
        """Groups by worker pool; those of our own roles under an empty name."""
        pools = self._config.worker_nodes
        account = resources.create_node_account(self._scope, self._config.images.registry)
        args = NodeGroupsArgs(
            cloud=self._cloud,
            cluster_id=self._cluster.id,
            subnet_id=self._subnet,
            service_account_id=account.id if account else None,
            filesystems=self._filesystems,
            gpu_clusters=resources.create_gpu_clusters(self._scope, pools),
            saves_jail=self._config.backup is not None,
        )
        groups: dict[str, list[pulumi.Resource]] = {"": [*create_role_groups(self._scope, args)]}
        for name, pool in pools.items():
            groups[name] = [*create_worker_groups(self._scope, args, name, pool)]
        return groups

    def _create_kubernetes_provider(self) -> k8s.Provider:
        cloud, prefix = self._cloud, self._scope.prefix
        config = resources.kubeconfig(self._cluster, cloud, prefix)
        self.exports |= {"cluster_id": self._cluster.id, "kubeconfig": config}
        # What can never change of a cluster: with another value it is another cluster, without our objects.
        identity = (cloud.project_id, prefix, cloud.subnet_id or "own", cloud.kubernetes.service_cidr or "default")
        # Objects need our own machines to start and, when all is destroyed, to end in order and give back their disks
        # and load balancers.
        return kubernetes_provider(config, identifier="/".join(identity), after=self._groups[""])

    def _create_gpu_stack(self) -> None:
        if all(pool.gpu_cluster is None for pool in self._config.worker_nodes.values()):
            return
        # It keeps nothing outside the cluster, so it need not be taken down before it.
        opts = pulumi.ResourceOptions(parent=self, provider=self.provider, deleted_with=self._cluster)
        GpuStack(self._scope.name("gpu-stack"), self._scope.prefix, opts)

    def _create_login_address(self) -> Mapping[str, pulumi.Input[str]]:
        """Annotations of the login Service with its address, where it has a load balancer."""
        login = self._config.login
        if login.service_type != "LoadBalancer":
            return {}
        address = resources.create_login_address(self._scope, self._subnet, login.annotations)
        self.exports["login_address"] = resources.address_of(address)
        return {resources.ALLOCATION_ANNOTATION: address.id}

    # What a cluster needs of its cloud (components/clouds/base.py), where it differs from that of most

    def static_volume(
        self, args: StaticVolumeArgs, opts: pulumi.ResourceOptions
    ) -> k8s.core.v1.PersistentVolume | None:
        """The shared file system for the claim, where the machines mount it; None where there is none."""
        if args.claim not in self._filesystems:
            return None
        # The directory is the mount point; it must be there already, or the machine is not set up.
        return host_volume(args, resources.mount_path(args.claim), opts, kind="Directory")

    def placement(self, role: Role) -> Placement:
        """On the machines of the role."""
        return role_placement(role)

    def worker_placement(self, pool_name: str, pool: WorkerPool) -> Placement:
        """On the machines of the pool, with InfiniBand devices where these have them."""
        return worker_placement(pool_name, pool, {RDMA_RESOURCE: "1"}, machines=self._groups[pool_name])
