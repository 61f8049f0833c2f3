"""What machines and Slurm lie in: network and address, cluster, file systems, GPU clusters; and who asks.

And in whose name machines pull images.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pulumi
import pulumi_nebius as nebius

from config.base import parse_bytes
from config.nebius.needs import FilesystemNeed
from config.sections.cloud import Kubernetes, NebiusCloud
from config.sections.workers import WorkerPool

TOKEN_ENV = "NEBIUS_IAM_TOKEN"  # noqa: S105  name of a variable
"""A token in the environment, which the provider reads by itself."""

CREDENTIALS_ENV = "SLURMSTACK_NEBIUS_CREDENTIALS"
"""Path of a service account's credentials file; the same variable as for `slurmstack doctor cloud`."""

ALLOCATION_ANNOTATION = "nebius.com/load-balancer-allocation-id"
"""Gives a Service of type LoadBalancer an address that outlives it (README of the Kubernetes recipes in
nebius/nebius-solutions-library)."""

_TYPE_ANNOTATION = "nebius.com/load-balancer-type"
"""`internal` asks for a load balancer that only the network can reach; by default it is public (the same README)."""

_PLUGINS: dict[Literal["cli", "sdk"], list[str]] = {
    "cli": ["nebius", "mk8s", "v1", "cluster", "get-token", "--format", "json"],
    "sdk": ["slurmstack", "kube-token"],
}
"""Commands that print a token. The token is the account's, so no cluster need be named."""

EXEC_API = "client.authentication.k8s.io/v1beta1"
"""Version of the answer that the vendor's command gives."""

OF_CONTROLLER = ("controller-state", "database-data")
"""File systems that only the machines of the role `controller` mount."""

OF_JAIL = ("jail", "homes")
"""What Jobs that write users' accounts and homes have, and backups."""

PULL_ROLE = "viewer"
"""Lets machines pull images. There is no narrower role for registries (docs.nebius.com, IAM, roles); it is granted for
the one registry only."""

# Of the cloud's own registries, as in `cr.eu-north1.nebius.cloud/e00example/slurm`.
_REGISTRY = re.compile(r"^cr\.[a-z0-9-]+\.nebius\.cloud/(?:registry-)?([a-z0-9-]+)(?:/|$)")

MOUNT_ROOT = "/mnt/slurmstack"
"""Directory of the machines below which each file system is mounted, under its tag."""


def create_provider(project: str) -> nebius.Provider:
    """The provider, with a service account's file, else a token, else the profile of the vendor's command.

    The first two are named by variables, so neither their content nor a path gets into the state. Its own patience of
    one minute made deletions fail; the vendor's recipe gives it ten.
    """
    file = bool(os.environ.get(CREDENTIALS_ENV))
    token = bool(os.environ.get(TOKEN_ENV))
    return nebius.Provider(
        "nebius",
        parent_id=project,
        service_account=nebius.ProviderServiceAccountArgs(credentials_file_env=CREDENTIALS_ENV) if file else None,
        profile=None if file or token else nebius.ProviderProfileArgs(),
        timeout="10m",
        per_retry_timeout="1m",
        retries=10,
    )


@dataclass(frozen=True, kw_only=True)
class CloudScope:
    """Project, names and options of the resources that one stack makes.

    The name in the cloud is the name in Pulumi, and it comes from a key of the stack file and never from a position in
    a list: a resource keeps its name whatever comes or goes beside it.
    """

    component: pulumi.Resource
    """Parent of everything, which also hands down the provider."""
    project: str
    prefix: str
    """How all names begin."""
    protects_data: bool
    """Whether Pulumi refuses to delete or replace what holds data."""

    def name(self, suffix: str) -> str:
        """Name of a resource, in the cloud and in Pulumi."""
        return f"{self.prefix}-{suffix}"

    @property
    def labels(self) -> dict[str, str]:
        """Labels of the cloud's resources, by which people find what belongs together."""
        return {"managed-by": "slurmstack", "slurmstack": self.prefix}

    @property
    def options(self) -> pulumi.ResourceOptions:
        """Options of what can be made again.

        The service allows a name only once in a project, so where one resource takes the place of another, the old one
        goes first.
        """
        return pulumi.ResourceOptions(parent=self.component, delete_before_replace=True)

    def data_options(self, *, retain: bool = False) -> pulumi.ResourceOptions:
        """Options of what holds data. `retain`: Pulumi only forgets it where it would delete it."""
        return self.options.merge(
            pulumi.ResourceOptions(protect=self.protects_data, retain_on_delete=retain or None),
        )

    def named(self, suffix: str, opts: pulumi.ResourceOptions | None = None) -> dict[str, Any]:
        """What all resources are given: name, project, labels, options. `opts`: where they are not those of most."""
        name = self.name(suffix)
        given = {"parent_id": self.project, "labels": self.labels, "opts": opts or self.options}
        return {"resource_name": name, "name": name, **given}


def create_subnet(scope: CloudScope) -> nebius.VpcV1Subnet:
    """A network of our own, and in it one subnet that takes its addresses from the network's pools."""
    network = nebius.VpcV1Network(
        **scope.named("network"),
    )
    return nebius.VpcV1Subnet(
        **scope.named("subnet"),
        network_id=network.id,
        ipv4_private_pools={"use_network_pools": True},
        ipv4_public_pools={"use_network_pools": True},
    )


def create_login_address(
    scope: CloudScope, subnet_id: pulumi.Input[str], annotations: Mapping[str, str]
) -> nebius.VpcV1Allocation:
    """An address for the login Service, so that users keep it when the Service is made anew.

    Private where the Service's annotations ask for an internal load balancer, else public.
    """
    internal = annotations.get(_TYPE_ANNOTATION) == "internal"
    return nebius.VpcV1Allocation(
        **scope.named("login"),
        ipv4_private={"subnet_id": subnet_id} if internal else None,
        ipv4_public=None if internal else {"subnet_id": subnet_id},
    )


def address_of(allocation: nebius.VpcV1Allocation) -> pulumi.Output[str]:
    """The address without its mask: `203.0.113.7`."""
    return allocation.status.details.allocated_cidr.apply(lambda cidr: str(cidr).partition("/")[0])


def create_cluster(scope: CloudScope, kubernetes: Kubernetes, subnet_id: pulumi.Input[str]) -> nebius.Mk8sV1Cluster:
    """The control plane; it is protected, since everything in Kubernetes is lost with it."""
    plane: nebius.Mk8sV1ClusterControlPlaneArgsDict = {
        "subnet_id": subnet_id,
        "version": kubernetes.version,
        "etcd_cluster_size": kubernetes.control_plane_size,
    }
    if kubernetes.public_endpoint:  # without one, the API can only be reached from the subnet
        allowed = kubernetes.allowed_cidrs
        plane["endpoints"] = {"public_endpoint": {"allowed_cidrs": list(allowed)} if allowed else {}}
    if kubernetes.audit_logs:
        plane["audit_logs"] = {}  # empty, but there: the service takes the mere presence for "on"
    return nebius.Mk8sV1Cluster(
        scope.prefix,
        name=scope.prefix,
        parent_id=scope.project,
        control_plane=plane,
        kube_network={"service_cidrs": [kubernetes.service_cidr]} if kubernetes.service_cidr else None,
        labels=scope.labels,
        opts=scope.data_options(),
    )


def kubeconfig(cluster: nebius.Mk8sV1Cluster, cloud: NebiusCloud, name: str) -> pulumi.Output[str]:
    """A kubeconfig for the cluster. kubectl asks a command for a token each time; there is none in the file."""

    def render(status: Any) -> str:
        plane = status.control_plane
        public = cloud.kubernetes.public_endpoint
        server = plane.endpoints.public_endpoint if public else plane.endpoints.private_endpoint
        certificate = plane.auth.cluster_ca_certificate
        return json.dumps(_document(name, server, certificate, _PLUGINS[cloud.credentials]), indent=2)

    return cluster.status.apply(render)


def _document(name: str, server: str, certificate: str, command: Sequence[str]) -> dict[str, Any]:
    url = server if "://" in server else f"https://{server}"
    authority = base64.b64encode(certificate.encode()).decode()
    plugin = {
        "apiVersion": EXEC_API,
        "command": command[0],
        "args": list(command[1:]),
        "interactiveMode": "IfAvailable",
    }
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": url, "certificate-authority-data": authority}}],
        "users": [{"name": name, "user": {"exec": plugin}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }


def mount_path(tag: str) -> str:
    """Where machines mount the file system of this tag."""
    return f"{MOUNT_ROOT}/{tag}"


def create_filesystems(
    scope: CloudScope, wanted: Iterable[FilesystemNeed], *, allow_replacement: bool
) -> Mapping[str, pulumi.Input[str]]:
    """Ids by tag. An existing file system is used as it is: it is none of Pulumi's."""
    return {item.tag: item.filesystem.id or _create_filesystem(scope, item, allow_replacement).id for item in wanted}


def _create_filesystem(scope: CloudScope, item: FilesystemNeed, allow_replacement: bool) -> nebius.ComputeV1Filesystem:
    """A new file system.

    What the cloud is to keep from deletion, Pulumi does not try to delete either: `destroy` forgets it, and the next
    stack can name it by its id.
    """
    filesystem = item.filesystem
    return nebius.ComputeV1Filesystem(
        **scope.named(item.tag, scope.data_options(retain=filesystem.forbid_deletion and not allow_replacement)),
        type=filesystem.type,
        size_gibibytes=item.size_gib,
        block_size_bytes=parse_bytes(filesystem.block_size) if filesystem.block_size else None,
        forbid_deletion=filesystem.forbid_deletion,
    )


def create_gpu_clusters(scope: CloudScope, pools: Mapping[str, WorkerPool]) -> Mapping[str, pulumi.Input[str]]:
    """Id of the GPU cluster of each pool that has one.

    One new GPU cluster for each fabric, shared by the pools that name it: machines in different GPU clusters cannot
    reach each other, even on the same fabric. Pools that name an existing one get that.
    """
    chosen = {name: pool.gpu_cluster for name, pool in pools.items() if pool.gpu_cluster is not None}
    fabrics = sorted({each.infiniband_fabric for each in chosen.values() if each.infiniband_fabric is not None})
    made = {
        fabric: nebius.ComputeV1GpuCluster(**scope.named(fabric), infiniband_fabric=fabric).id for fabric in fabrics
    }
    return {name: each.id or made[str(each.infiniband_fabric)] for name, each in chosen.items()}


def create_node_account(scope: CloudScope, registry: str | None) -> nebius.IamV1ServiceAccount | None:
    """In whose name the machines pull images, where these are in a registry of the cloud; else nobody's.

    Whatever runs on a machine can act in this name, so it may do nothing but read that registry. Other registries need
    no permission of the cloud's, but perhaps a pull secret. Roles are given to groups only, so it comes with a group of
    its own in the project, instead of joining one of the tenant's groups whose roles reach everywhere.
    """
    match = _REGISTRY.match(registry or "")
    if match is None:
        return None
    name = scope.name("nodes")
    account = nebius.IamV1ServiceAccount(**scope.named("nodes"), description="Pulls container images to the machines")
    group = nebius.IamV1Group(**scope.named("nodes"))
    nebius.IamV1GroupMembership(name, name=name, parent_id=group.id, member_id=account.id, opts=scope.options)
    nebius.IamV1AccessPermit(
        name,
        name=name,
        parent_id=group.id,
        resource_id=f"registry-{match.group(1)}",
        role=PULL_ROLE,
        opts=scope.options,
    )
    return account
