"""The whole configuration of one Slurm cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from config.base import Section
from config.names import AccountName, GroupName, QosName
from config.sections.accounting import Account, Accounting, Qos
from config.sections.cloud import Cloud, ExistingCloud
from config.sections.health import Health
from config.sections.monitoring import Backup, Monitoring
from config.sections.services import Cluster, Controller, Dashboard, Images, Login, NetworkPolicies, Rest, Rolling
from config.sections.slurm import (
    JobSubmit,
    LicenseName,
    Partition,
    PartitionName,
    Preemption,
    Slurm,
    Topology,
)
from config.sections.storage import Jail, Mount, MountName
from config.sections.users import Group, Sssd, User, UserName
from config.sections.workers import PoolName, WorkerPool


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
    worker_ssh: bool = Field(default=True, strict=True)
    """Whether users with a running job on a worker with the jail get there by ssh, into the job."""
    jail: Jail = Field(default_factory=Jail)
    """The shared root file system."""
    mounts: dict[MountName, Mount] = Field(default_factory=dict)
    """Shared volumes besides the jail, by name."""
    topology: Topology = Field(default_factory=Topology)
    """Which nodes are near to each other."""
    users: dict[UserName, User] = Field(default_factory=dict)
    """People who may log in, by name."""
    groups: dict[GroupName, Group] = Field(default_factory=dict)
    """Groups in the jail, by name."""
    sssd: Sssd | None = None
    """Users from LDAP, Active Directory or FreeIPA."""
    accounting: Accounting = Field(default_factory=Accounting)
    """slurmdbd and its database."""
    accounts: dict[AccountName, Account] = Field(default_factory=dict)
    """Slurm's accounts, by name: a tree with shares and limits."""
    qos: dict[QosName, Qos] = Field(default_factory=dict)
    """Qualities of service, by name. `normal` is there in any case."""
    preemption: Preemption = Field(default_factory=Preemption)
    """Which jobs give way to others."""
    licenses: dict[LicenseName, Annotated[int, Field(ge=1, le=4_000_000, strict=True)]] = Field(default_factory=dict)
    """Licenses that jobs may ask for (`--licenses`), and how many there are."""
    job_submit: JobSubmit = Field(default_factory=JobSubmit)
    """Rules for every job at its submission."""
    rest: Rest = Field(default_factory=Rest)
    """Slurm's REST API."""
    health: Health = Field(default_factory=Health)
    """Checks on the nodes, and the drains that follow."""
    slurm: Slurm = Field(default_factory=Slurm)
    """Version and settings of Slurm."""
    images: Images = Field(default_factory=Images)
    """Where the container images come from."""
    rolling: Rolling = Field(default_factory=Rolling)
    """How worker nodes get new pods."""
    monitoring: Monitoring = Field(default_factory=Monitoring)
    """Metrics for Prometheus."""
    dashboard: Dashboard = Field(default_factory=Dashboard)
    """A page for people, behind the REST API's TLS."""
    network_policies: NetworkPolicies = Field(default_factory=NetworkPolicies)
    """Who may connect to what."""
    backup: Backup | None = None
    """Backups to an S3 store. Default: none."""
    protect: bool | None = Field(default=None, strict=True)
    """Whether Pulumi refuses to delete what holds data. Default: yes, but not on the local cluster."""

    @property
    def protects_data(self) -> bool:
        """Whether volumes, keys and the namespace are protected from deletion."""
        return not self.cloud.is_local if self.protect is None else self.protect

    @property
    def elastic_pools(self) -> dict[str, WorkerPool]:
        """Those whose nodes Slurm starts and ends."""
        return {name: pool for name, pool in self.worker_nodes.items() if pool.is_elastic}

    @property
    def queue_outlives_destroy(self) -> bool:
        """Whether slurmctld's state is in a directory that stays: the next `up` goes on with the same queue."""
        return self.cloud.is_local and self.controller.storage_class is None


@dataclass(frozen=True, kw_only=True)
class Sections:
    """A stack file while it is checked: `valid` has the sections that could be read, `written` all as written."""

    valid: Mapping[str, Any]
    written: Mapping[str, Any]

    def get(self, name: str) -> Any:
        """A section, or its default where none is written. One that is wrong itself has no default: None.

        Of a section of named things, those that are right by themselves.
        """
        field = ClusterConfig.model_fields[name]
        if name in self.valid:
            return self.valid[name]
        if name not in self.written and not field.is_required():
            return field.get_default(call_default_factory=True)
        return {} if str(field.annotation).startswith("dict[") else None

    def names(self, name: str) -> list[str]:
        """All names in a section of named things, also of those that are wrong otherwise."""
        section = self.written.get(name)
        return [str(key) for key in section] if isinstance(section, Mapping) else []
