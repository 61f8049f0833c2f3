"""`slurmstack:accounting`, `accounts`, `qos`: slurmdbd and its database, who may use how much, and who goes first."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from config.base import Cpu, Matching, Memory, Quantity, Section, TimeLimit, Volume, at_least, seconds
from config.errors import nearest
from config.names import AccountName, Host, ObjectName, QosName
from config.sections.slurm import DatabaseSettings
from config.sections.storage import Filesystem

Enforce = Literal["associations", "limits", "qos", "safe", "wckeys", "nojobs", "nosteps"]
"""What `AccountingStorageEnforce` in slurm.conf knows."""


Age = Annotated[
    str,
    Matching(
        r"^([1-9][0-9]{0,3})(hours?|days?|months?)$",
        "is not an age: a number up to 9999 with hours, days or months, for example 90days or 12months",
    ),
]
"""An age as slurmdbd.conf(5) has it: `36hours`, `90days`, `12months`."""


class SecretKey(Section):
    """One value of a Secret in the cluster's namespace, which you make yourself."""

    name: ObjectName
    """Name of the Secret."""
    key: str = Field(pattern=r"^[-._a-zA-Z0-9]{1,253}$")
    """Key of the value in it."""


class DatabaseTls(Section):
    """TLS between slurmdbd and an external database."""

    ca: SecretKey | None = None
    """Certificate (PEM) that signed the database's own. Default: the authorities that the operating system trusts."""
    client: ObjectName | None = None
    """Secret of the type `kubernetes.io/tls` with the certificate that slurmdbd shows. Default: none."""


class ExternalDatabase(Section):
    """A MySQL or MariaDB server that is already there. It is used as it is; `destroy` leaves it alone."""

    host: Host
    """Host name or address."""
    port: int = Field(default=3306, ge=1, le=65535, strict=True)
    """TCP port."""
    user: str = Field(default="slurm", pattern=r"^[A-Za-z0-9_.@-]{1,80}$")
    """User with all privileges on the database."""
    name: str = Field(default="slurm_acct_db", pattern=r"^[A-Za-z0-9_]{1,64}$")
    """Name of the database (`StorageLoc`). slurmdbd makes it if the user may."""
    password: SecretKey
    """Where the user's password is."""
    tls: DatabaseTls | None = None
    """Default: no TLS. Write `tls: {}` for TLS with the authorities that the operating system trusts."""


class Database(Section):
    """Where slurmdbd keeps its records: a MariaDB of this cluster, or an external server."""

    storage: Volume = "10Gi"
    """Size of the volume of the cluster's own MariaDB; at least 100Mi. A million jobs need about 1 GiB."""
    storage_class: ObjectName | None = None
    """Storage class of that volume. Default: a static volume of the cloud or
    the local cluster, else the Kubernetes cluster's default class."""
    filesystem: Filesystem | None = None
    """A shared file system of the cloud for the database. Default: a disk of the cluster's storage class."""
    cpu: Cpu = "100m"
    """CPU that MariaDB asks Kubernetes for."""
    memory: Annotated[Quantity, at_least("256Mi", "MariaDB")] = "512Mi"
    """Memory of the MariaDB pod, as request and limit; at least 256Mi. Half of it becomes InnoDB's buffer pool."""
    external: ExternalDatabase | None = None
    """A server of your own instead of a MariaDB in the cluster."""


class Retention(Section):
    """How long slurmdbd keeps records. What is older is purged for good, once a day, hour or month as the unit says.

    Of other records `settings` tell another age than ours: `PurgeEventAfter`, `PurgeResvAfter`, `PurgeSuspendAfter` (12
    months) and `PurgeTXNAfter` (24 months).
    """

    jobs: Age | None = "24months"
    """Jobs (`PurgeJobAfter`). null: for ever, here and below."""
    steps: Age | None = "6months"
    """Job steps (`PurgeStepAfter`)."""
    usage: Age | None = None
    """Summed usage (`PurgeUsageAfter`). It is small, and fair share and reports are made from it."""


class Accounting(Section):
    """slurmdbd with its database, and the job that applies accounts, QOS and users."""

    enabled: bool = Field(default=True, strict=True)
    """Whether jobs are recorded. Without it there are no accounts, QOS, fair share and limits."""
    database: Database = Field(default_factory=Database)
    """Where the records are."""
    retention: Retention = Field(default_factory=Retention)
    """How long records are kept."""
    enforce: tuple[Enforce, ...] | None = None
    """What a job must have to be accepted (`AccountingStorageEnforce`). Default: associations, limits, qos and safe
    once `accounts` are declared; nothing before, so that everybody may run jobs."""
    max_submit_jobs: int = Field(default=20_000, ge=1, le=2_000_000_000, strict=True)
    """Jobs that a user may have queued and running in an account, unless it or one above has a `max_submit_jobs`. The
    tasks of an array count. It holds where limits are enforced, so by default once `accounts` are declared. The whole
    cluster takes 100,000 jobs at a time (`MaxJobCount`)."""
    prune: bool = Field(default=False, strict=True)
    """Whether accounts, QOS and associations made by hand are removed. Default: they are reported and stay."""
    cpu: Cpu = "50m"
    """CPU that slurmdbd asks Kubernetes for."""
    memory: Memory = "128Mi"
    """Memory that slurmdbd asks Kubernetes for; at least 32Mi. There is no limit: a large report must not kill it."""
    settings: DatabaseSettings = Field(default_factory=dict)
    """Any key of slurmdbd.conf; it wins over our default."""

    @property
    def own_database(self) -> Database | None:
        """The MariaDB that the cluster brings along; None without accounting, and with an external server."""
        return self.database if self.enabled and self.database.external is None else None


Count = Annotated[int, Field(ge=0, le=2_000_000_000, strict=True)]
"""A limit; zero allows nothing. slurmdbd keeps 32 bits, of which the highest values mean "no limit"."""

Amount = Annotated[int, Field(ge=0, le=10**18, strict=True)]
"""A limit of a trackable resource; zero allows nothing. slurmdbd keeps 64 bits, of which the highest values mean "no
limit". A year of 10,000 CPUs is 5,256,000,000 CPU minutes."""

_TRES = r"^(cpu|mem|node|energy|billing|vmem|pages|(gres|license|bb|fs|ic)/[A-Za-z0-9_:./@-]+)$"


def tres_name(name: str) -> str:
    """The name, or ValueError if it is that of no resource that Slurm tracks."""
    if not re.fullmatch(_TRES, name):
        guess = "gres/gpu" if "gpu" in name.lower() else nearest(name, ("cpu", "mem", "node", "energy", "billing"))
        hint = f"; did you mean {guess!r}?" if guess else ""
        raise ValueError(f"is not a trackable resource: cpu, mem (MiB), node, billing, gres/NAME, license/NAME{hint}")
    return name


TresName = Annotated[str, AfterValidator(tres_name), Field(json_schema_extra={"pattern": _TRES})]

Tres = dict[TresName, Amount]
"""Trackable resources: `cpu`, `mem` (MiB), `node`, `billing`, `gres/gpu`, `gres/gpu:h100`, `license/NAME`."""

MOST_SHARES = 2_000_000_000
"""The highest number that slurmdbd keeps means `parent`."""


def _fairshare(value: object) -> object:
    if value == "parent" or (type(value) is int and 0 <= value <= MOST_SHARES):
        return value
    raise ValueError(f"is neither a number of shares from 0 to {MOST_SHARES:,} nor 'parent'")


Fairshare = Annotated[
    Annotated[int, Field(ge=0, le=MOST_SHARES, strict=True)] | Literal["parent"], BeforeValidator(_fairshare)
]
"""Shares relative to the siblings in the tree; 0 goes last, `parent` takes part in the parent's share."""


# Fields of what follows have the names of sacctmgr's own options, so that its manual explains them further.


class GroupLimits(Section):
    """Limits of an association and of a QOS alike."""

    grp_tres: Tres = Field(default_factory=dict)
    """Resources that all running jobs together may hold at the same time."""
    grp_tres_mins: Tres = Field(default_factory=dict)
    """Resource minutes that may be used in all, as decayed by the half-life: a budget."""
    grp_tres_run_mins: Tres = Field(default_factory=dict)
    """Resource minutes that the running jobs may still need."""
    grp_jobs: Count | None = None
    """Jobs running at the same time."""
    grp_submit_jobs: Count | None = None
    """Jobs queued and running at the same time."""
    grp_wall: TimeLimit | None = None
    """Wall time that may be used in all."""
    max_tres_per_job: Tres = Field(default_factory=dict)
    """Resources of one job."""
    max_tres_per_node: Tres = Field(default_factory=dict)
    """Resources of one job on one node."""


class Association(GroupLimits):
    """What a user has in one account. A limit that is left out: that of the level above, else none."""

    max_tres_mins_per_job: Tres = Field(default_factory=dict)
    """Resource minutes of one job."""
    max_jobs: Count | None = None
    """Jobs that each user may have running in the account."""
    max_submit_jobs: Count | None = None
    """Jobs that each user may have queued and running."""
    max_wall: TimeLimit | None = None
    """Wall time of one job."""

    fairshare: Fairshare = 1
    """Shares among the siblings: the users of an account, or the accounts below the same parent."""
    qos: Annotated[tuple[QosName, ...], Field(min_length=1)] | None = None
    """QOS that jobs may use. Default: those of the level above; of the topmost accounts: `normal`."""
    default_qos: QosName | None = None
    """QOS of jobs that name none; one of those in `qos`. Default: that of the level above."""
    priority: Count | None = None
    """Part of a job's priority that comes from the association."""


_WORDS = r"^[^\"'|=\x00-\x1f\x7f\x85\u2028\u2029]*$"
"""Nothing that sacctmgr's lists have between values or lines."""


class Account(Association):
    """A team, a project or whatever jobs are booked on."""

    parent: AccountName | None = None
    """The account above in the tree. Default: the root."""
    description: str = Field(default="", max_length=200, pattern=_WORDS)
    """For people. Default: the account's name."""
    organization: str = Field(default="", max_length=200, pattern=_WORDS)
    """For people. Default: the name of the topmost account above."""


QosFlag = Literal[
    "DenyOnLimit", "EnforceUsageThreshold", "NoDecay", "NoReserve", "OverPartQOS", "PartitionMaxNodes",
    "PartitionMinNodes", "PartitionTimeLimit", "RequiresReservation", "UsageFactorSafe",
]  # fmt: skip


def _some_limit(limit: str) -> str:
    if seconds(limit) is None:  # to Slurm that is one that is not set
        raise ValueError("would be no time at all to Slurm; write a long time, such as 365-0")
    return limit


class Precedence(Section):
    """What a QOS is worth."""

    description: str = Field(default="", max_length=200, pattern=_WORDS)
    """For people."""
    priority: Count = 0
    """Weighed by `PriorityWeightQOS`."""
    preempt: tuple[QosName, ...] = ()
    """QOS whose jobs give way to jobs of this one, with `preemption.type: qos`."""
    preempt_mode: Literal["cluster", "cancel", "requeue", "suspend"] = "cluster"
    """What happens to jobs of this QOS that have to give way. `cluster`: `preemption.mode`."""
    preempt_exempt_time: Annotated[TimeLimit, AfterValidator(_some_limit)] | None = None
    """Time that jobs of this QOS run at least before they are preempted."""
    grace_time: int = Field(default=0, ge=0, le=86400, strict=True)
    """Seconds between SIGTERM and the end of a preempted job, with the modes requeue and cancel."""
    flags: tuple[QosFlag, ...] = ()
    """As sacctmgr(1) has them. OverPartQOS: its limits come before those of the partition's QOS."""
    usage_factor: float = Field(default=1.0, ge=0, le=1_000_000)
    """How much a second of a job counts as usage."""
    usage_threshold: float | None = Field(default=None, ge=0, le=1)
    """Lowest fair-share factor with which a job is accepted, with the flag EnforceUsageThreshold."""
    limit_factor: float | None = Field(default=None, ge=0, le=1_000_000)
    """By how much the resource limits of an association are multiplied for jobs of this QOS."""


class Qos(GroupLimits, Precedence):
    """A quality of service: priority, limits and preemption that a job asks for with `--qos`."""

    max_tres_per_user: Tres = Field(default_factory=dict)
    """Resources of all running jobs of one user."""
    max_tres_per_account: Tres = Field(default_factory=dict)
    """Resources of all running jobs of one account."""
    max_tres_mins_per_job: Tres = Field(default_factory=dict)
    """Resource minutes of one job."""
    min_tres_per_job: Tres = Field(default_factory=dict)
    """Resources that a job must ask for at least."""
    max_jobs_per_user: Count | None = None
    """Jobs that each user may have running."""
    max_jobs_per_account: Count | None = None
    """Jobs that each account may have running."""
    max_submit_jobs_per_user: Count | None = None
    """Jobs that each user may have queued and running."""
    max_submit_jobs_per_account: Count | None = None
    """Jobs that each account may have queued and running."""
    max_wall: TimeLimit | None = None
    """Wall time of one job."""
    min_prio_threshold: Count | None = None
    """Priority below which jobs of this QOS reserve no resources in the future."""
