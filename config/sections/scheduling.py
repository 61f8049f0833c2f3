"""`slurmstack:partitions`, `topology`, `preemption`, `reservations`, `job_submit`: which job runs where."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from config.base import Matching, Section, TimeLimit, once, seconds
from config.names import AccountName, DirectoryGroup, DirectoryUser, LabelKey
from config.sections.slurm import Settings

_PARTITION = r"^[A-Za-z][A-Za-z0-9_-]{0,62}$"


def _partition_name(name: str) -> str:
    if not re.fullmatch(_PARTITION, name) or name.upper() in {"ALL", "DEFAULT"}:
        raise ValueError(
            "is not a partition name: letters, digits, '_' and '-', beginning with a letter; not ALL or DEFAULT"
        )
    return name


PartitionName = Annotated[str, AfterValidator(_partition_name), Field(json_schema_extra={"pattern": _PARTITION})]


def _some_time(limit: str) -> str:
    if seconds(limit) == 0:
        raise ValueError("is no time at all, so that no job could run; leave it out for no limit")
    return limit


class Partition(Section):
    """A queue over one or more pools."""

    pools: Annotated[tuple[str, ...], Field(min_length=1), AfterValidator(once)]
    """Names of the pools whose nodes belong to it."""
    default: bool = Field(default=False, strict=True)
    """Whether jobs without `--partition` go here. A single partition is always the default."""
    max_time: Annotated[TimeLimit, AfterValidator(_some_time)] = "UNLIMITED"
    """Longest time limit that a job may ask for; not zero."""
    default_time: TimeLimit | None = None
    """Time limit of jobs that ask for none. Default: `max_time`."""
    allow_accounts: tuple[str, ...] = ()
    """Accounts whose jobs may run here, with all accounts below them. Default: all."""
    deny_accounts: tuple[str, ...] = ()
    """Accounts whose jobs may not run here, with all accounts below them. Not together with `allow_accounts`."""
    allow_groups: tuple[DirectoryGroup, ...] = ()
    """Groups whose members may run jobs here: names in `slurmstack:groups`, or a user's own. Default: all."""
    allow_qos: tuple[str, ...] = ()
    """QOS that jobs here may have. Default: all."""
    deny_qos: tuple[str, ...] = ()
    """QOS that jobs here may not have. Not together with `allow_qos`."""
    qos: str | None = None
    """QOS whose limits hold for all jobs of the partition."""
    priority_tier: int | None = Field(default=None, ge=0, le=65533, strict=True)
    """Jobs of a partition with a higher tier are looked at first, and with `preemption.type: partition` preempt."""
    preempt_mode: Literal["off", "requeue", "cancel", "suspend"] | None = None
    """What happens to jobs that give way here, with `preemption.type: partition`. Default: `preemption.mode`."""
    settings: Settings = Field(default_factory=dict)
    """Further options of the `PartitionName` line in slurm.conf, for example `PriorityTier: 10`."""


class Topology(Section):
    """Where Slurm learns how the network connects the nodes, so that it places a job's nodes close together."""

    plugin: Literal["none", "tree"] | None = None
    """`tree`: a tree of switches from labels of the Kubernetes nodes. `none`: all nodes are alike. Default: `tree`
    where a pool has a `gpu_cluster`, else `none`."""
    labels: Annotated[tuple[LabelKey, ...], AfterValidator(once)] = Field(
        default=("topology.nebius.com/tier-0", "topology.nebius.com/tier-1", "topology.nebius.com/tier-2"),
        min_length=1,
        max_length=8,
    )
    """Labels of the Kubernetes nodes that name their switches, from the core to the nodes."""


def _timestamp(value: str) -> str:
    try:
        datetime.fromisoformat(value)
    except ValueError as error:
        raise ValueError(f"is not a time of the calendar: {error}") from None
    return value


Timestamp = Annotated[
    str,
    Matching(
        r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(:[0-9]{2})?$",
        "is not a time such as 2026-12-01T08:00:00 (UTC, the time zone of the pods)",
    ),
    AfterValidator(_timestamp),
]
"""A time in UTC: `2026-12-01T08:00:00`."""


ReservationName = Annotated[
    str,
    Matching(r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}$", "is not a name: letters, digits, '_', '.' and '-', at most 63"),
]
LicenseName = ReservationName


class Preemption(Section):
    """Which jobs give way to others."""

    type: Literal["none", "qos", "partition"] = "none"
    """`qos`: as `qos.<name>.preempt` says. `partition`: those of a partition with a lower `priority_tier`."""
    mode: Literal["requeue", "cancel", "suspend"] = "requeue"
    """What happens to a job that gives way, unless its QOS or partition says otherwise (`PreemptMode`)."""


class Reservation(Section):
    """Nodes that are kept for some users or accounts, or for maintenance, at a time."""

    start: Timestamp
    """When it begins. Of a repeated one: the first time, which may be long ago."""
    end: Timestamp | None = None
    """When it ends. Either this or `duration`."""
    duration: TimeLimit | None = None
    """How long it lasts. `UNLIMITED` is a year for Slurm."""
    nodes: tuple[str, ...] = ()
    """Names of nodes, for example `gpu-0`. Either these or `node_count`."""
    node_count: int | None = Field(default=None, ge=1, le=10_000, strict=True)
    """How many nodes Slurm shall choose."""
    partition: PartitionName | None = None
    """Partition from which they are chosen. Default: the default partition."""
    users: tuple[DirectoryUser, ...] = ()
    """Users whose jobs may use it; with `accounts` too, only their jobs in these accounts."""
    accounts: tuple[AccountName, ...] = ()
    """Accounts whose jobs may use it."""
    repeat: Literal["hourly", "daily", "weekday", "weekend", "weekly"] | None = None
    """How often it comes again."""
    maintenance: bool = Field(default=False, strict=True)
    """Whether it is for maintenance (`MAINT`): it may overlap others, and the time is booked as planned down."""
    ignore_jobs: bool = Field(default=False, strict=True)
    """Whether it may be made over jobs that are running."""

    def _problem(self) -> str | None:
        if self.end is None and self.duration is None:
            return "does not say when it ends; set end or duration"
        if bool(self.nodes) == (self.node_count is not None):
            return "must have either nodes (names such as gpu-0) or node_count"
        nobody = not (self.users or self.accounts or self.maintenance)
        return "is for nobody; set users or accounts, or maintenance: true" if nobody else None


class JobSubmit(Section):
    """Rules for every job at its submission, for wishes that are common."""

    default_time: TimeLimit | None = None
    """Time limit of jobs that name none, in all partitions without `default_time`."""
    require_account: bool = Field(default=False, strict=True)
    """Whether jobs that do not name an account (`--account`) are refused, even if the user has a default one."""
    gpus_only_in_gpu_partitions: bool = Field(default=False, strict=True)
    """Whether jobs that ask for GPUs are refused in partitions without GPUs, and jobs that ask for none in partitions
    where all nodes have some."""

    @property
    def needs_script(self) -> bool:
        """Whether slurmctld must run a script for each job. The default time is an option of partitions."""
        return self.require_account or self.gpus_only_in_gpu_partitions
