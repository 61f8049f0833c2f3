"""The whole configuration of one Slurm cluster."""

from __future__ import annotations

from pydantic import Field

from config.base import Section
from config.cloud import Cloud, ExistingCloud
from config.partitions import Partition, PartitionName
from config.services import Cluster, Controller, Images, Jail, Login, NetworkPolicies
from config.slurm import Slurm
from config.storage import Mount, MountName
from config.topology import Topology
from config.users import User, UserName
from config.workers import PoolName, WorkerPool


class ClusterConfig(Section):
    """Every key that a stack file may have below `slurmstack:`."""

    cloud: Cloud = Field(default_factory=ExistingCloud)
    """Where the cluster runs."""

    cluster: Cluster = Field(default_factory=Cluster)
    """Names of the whole."""

    worker_nodes: dict[PoolName, WorkerPool]
    """Pools of compute nodes, by name."""

    partitions: dict[PartitionName, Partition] = Field(default_factory=dict)
    """Slurm's queues, by name. Left out: one partition `main` with all pools."""

    controller: Controller = Field(default_factory=Controller)
    """slurmctld and its state."""

    login: Login = Field(default_factory=Login)
    """Login nodes."""

    jail: Jail = Field(default_factory=Jail)
    """The shared root file system."""

    mounts: dict[MountName, Mount] = Field(default_factory=dict)
    """Shared volumes besides the jail, by name."""

    topology: Topology = Field(default_factory=Topology)
    """Which nodes are near to each other."""

    users: dict[UserName, User] = Field(default_factory=dict)
    """People who may log in, by name."""

    slurm: Slurm = Field(default_factory=Slurm)
    """Version and settings of Slurm."""

    images: Images = Field(default_factory=Images)
    """Where the container images come from."""

    network_policies: NetworkPolicies = Field(default_factory=NetworkPolicies)
    """Who may connect to what."""

    protect: bool | None = Field(default=None, strict=True)
    """Whether Pulumi refuses to delete what holds data. Default: yes, but not on the local cluster."""

    @property
    def protects_data(self) -> bool:
        """Whether volumes, keys and the namespace are protected from deletion."""
        return not self.cloud.is_local if self.protect is None else self.protect
