"""`slurmstack:cloud`: where the cluster runs, on a Kubernetes that is there or on Nebius and everything below it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Discriminator, Field, Tag

from config.base import Section
from config.names import Cidr, dns_label
from config.sections.machines import BootDisk
from config.sections.users import SshPublicKey

Role = Literal["system", "controller", "login"]
"""Kinds of machines besides the worker pools: `system` is for short jobs of ours and for the cluster's own pods."""


class SystemNodes(Section):
    """Machines of one of our own roles."""

    platform: str = "cpu-d3"
    """Kind of machine."""
    preset: str = "16vcpu-64gb"
    """Size of the machine."""
    boot_disk: BootDisk = Field(default_factory=BootDisk)
    """Disk that each machine starts from."""
    min_size: int = Field(default=1, ge=0, le=100, strict=True)
    """Machines at least."""
    max_size: int = Field(default=3, ge=1, le=100, strict=True)
    """Machines at most."""


class Kubernetes(Section):
    """The managed Kubernetes cluster."""

    version: str = Field(default="1.36", pattern=r"^1\.[0-9]{2}$")
    """Kubernetes version. It can go up by one minor version at a time."""
    control_plane_size: Literal[1, 3] = 3
    """etcd members. 3 survive the loss of one."""
    public_endpoint: bool = Field(default=True, strict=True)
    """Whether the API can be reached from outside the subnet."""
    allowed_cidrs: tuple[Cidr, ...] = Field(default=(), max_length=100)
    """Address ranges that may reach the public endpoint. None: everybody who has credentials."""
    audit_logs: bool = Field(default=False, strict=True)
    """Whether the service keeps the API's audit log."""
    service_cidr: Cidr | None = None
    """Range of Service addresses, /12 to /28. It can never change. Default: the service's, a /16 of the subnet."""


def _needs_kind(schema: dict[str, Any]) -> None:
    """`kind` has a default only because the model is chosen by it; a cloud without one is another kind."""
    schema["required"] = sorted({*schema.get("required", []), "kind"})


class NebiusCloud(Section):
    """Nebius: network, Managed Kubernetes, node groups, GPU clusters, file systems and addresses are made too."""

    model_config = ConfigDict(json_schema_extra=_needs_kind)

    kind: Literal["nebius"] = "nebius"
    """`nebius`: everything below Slurm is made in one project of the Nebius cloud."""
    project_id: str = Field(pattern=r"^project-[a-z0-9-]+$", max_length=63)
    """Project that holds everything."""
    region: str = Field(max_length=32)
    """Region of the project, for example `eu-north1`."""
    subnet_id: str | None = Field(default=None, pattern=r"^vpcsubnet-[a-z0-9-]+$")
    """Subnet for machines, pods and addresses. Default: a network and a subnet of our own."""
    name: Annotated[str, dns_label(longest=32)] | None = None
    """Prefix of all names in the cloud. Default: the cluster's namespace."""
    kubernetes: Kubernetes = Field(default_factory=Kubernetes)
    """The managed Kubernetes cluster."""
    system_nodes: SystemNodes = Field(default_factory=lambda: SystemNodes(min_size=1, max_size=3))
    """Machines for Kubernetes' own pods and for jobs of ours that prepare the cluster."""
    controller_nodes: SystemNodes = Field(
        default_factory=lambda: SystemNodes(preset="8vcpu-32gb", min_size=1, max_size=1)
    )
    """Machines for slurmctld and what belongs to it."""
    login_nodes: SystemNodes = Field(default_factory=lambda: SystemNodes(min_size=0, max_size=10))
    """Machines for login nodes."""
    credentials: Literal["cli", "sdk"] = "cli"
    """How kubectl and Pulumi get a token each time: `cli` runs the vendor's `nebius` command, `sdk` runs
    `slurmstack kube-token`, which needs only the Python SDK."""
    ssh_keys: tuple[SshPublicKey, ...] = ()
    """SSH public keys of administrators of the machines themselves (user `admin`). Default: nobody can log in there."""
    cluster_domain: Literal["cluster.local"] = "cluster.local"
    """DNS domain of the Kubernetes cluster; the service has no other."""
    allow_replacement: bool = Field(default=False, strict=True)
    """Whether a change that makes the Kubernetes cluster or a file system anew is allowed. For that one change only."""

    def prefix(self, namespace: str) -> str:
        """How all names in the cloud begin, for a cluster in this namespace."""
        return self.name or namespace

    @property
    def roles(self) -> Mapping[Role, SystemNodes]:
        """Machines of our own roles."""
        return {"system": self.system_nodes, "controller": self.controller_nodes, "login": self.login_nodes}

    @property
    def is_local(self) -> bool:
        """Whether this is the local cluster of this machine: never."""
        return False


class ExistingCloud(Section):
    """A Kubernetes cluster that is already there. Without a context: the local cluster of this machine."""

    kind: Literal["existing"] = "existing"
    """`existing`: a cluster that somebody else made, named by a kubeconfig context."""
    context: str | None = Field(default=None, min_length=1)
    """Context in the kubeconfig. Left out: the local cluster that `slurmstack local up` starts."""
    kubeconfig: str | None = Field(default=None, min_length=1)
    """Path of the kubeconfig file that has the context. Default: `$KUBECONFIG`, else `~/.kube/config`."""
    cluster_domain: str = Field(default="cluster.local", pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", max_length=128)
    """DNS domain of the Kubernetes cluster."""

    @property
    def is_local(self) -> bool:
        """Whether this is the local cluster of this machine."""
        return self.context is None


def _kind(value: Any) -> Any:
    return value.get("kind", "existing") if isinstance(value, Mapping) else getattr(value, "kind", None)


Cloud = Annotated[
    Annotated[ExistingCloud, Tag("existing")] | Annotated[NebiusCloud, Tag("nebius")], Discriminator(_kind)
]
"""One of the clouds, by `kind`."""

CLOUDS: Mapping[str, type[ExistingCloud | NebiusCloud]] = {"existing": ExistingCloud, "nebius": NebiusCloud}
"""The model of each `kind`."""
