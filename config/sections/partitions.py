"""`slurmstack:partitions`: Slurm's queues."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from config.base import Section, once
from config.names import DirectoryGroup
from config.sections.slurm import Settings
from config.times import TimeLimit, seconds

_NAME = re.compile(r"^[A-Za-z][A-Za-z0-9_-]{0,62}$")


def _partition_name(name: str) -> str:
    if not _NAME.fullmatch(name) or name.upper() in {"ALL", "DEFAULT"}:
        raise ValueError(
            "is not a partition name: letters, digits, '_' and '-', beginning with a letter; not ALL or DEFAULT"
        )
    return name


PartitionName = Annotated[str, AfterValidator(_partition_name), Field(json_schema_extra={"pattern": _NAME.pattern})]


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

    priority_job_factor: int | None = Field(default=None, ge=0, le=65533, strict=True)
    """Weighed by `priority.weights.partition`."""

    preempt_mode: Literal["off", "requeue", "cancel", "suspend"] | None = None
    """What happens to jobs that give way here, with `preemption.type: partition`. Default: `preemption.mode`."""

    settings: Settings = Field(default_factory=dict)
    """Further options of the `PartitionName` line in slurm.conf, for example `PriorityTier: 10`."""
