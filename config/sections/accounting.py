"""`slurmstack:accounting`: slurmdbd, its database, and how strictly the declared policy holds."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field

from config.base import Cpu, Memory, Quantity, Section, Volume, at_least, matching
from config.names import SecretName, StorageClassName
from config.sections.slurm import Settings
from config.sections.storage import Filesystem
from config.servers import Host

_PURGE = re.compile(r"^([1-9][0-9]{0,3})(hours?|days?|months?)$")

Enforce = Literal["associations", "limits", "qos", "safe", "wckeys", "nojobs", "nosteps"]
"""What `AccountingStorageEnforce` in slurm.conf knows."""


Age = Annotated[
    str,
    matching(_PURGE, "is not an age: a number up to 9999 with hours, days or months, for example 90days or 12months"),
    Field(json_schema_extra={"pattern": _PURGE.pattern}),
]
"""An age as slurmdbd.conf(5) has it: `36hours`, `90days`, `12months`."""


class SecretKey(Section):
    """One value of a Secret in the cluster's namespace, which you make yourself."""

    name: SecretName
    """Name of the Secret."""

    key: str = Field(pattern=r"^[-._a-zA-Z0-9]{1,253}$")
    """Key of the value in it."""


class DatabaseTls(Section):
    """TLS between slurmdbd and an external database."""

    ca: SecretKey | None = None
    """Certificate (PEM) that signed the database's own. Default: the authorities that the operating system trusts."""

    client: SecretName | None = None
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

    storage_class: StorageClassName | None = None
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
    """slurmdbd with its database, and the job that applies accounts, QOS, users and reservations."""

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
    """Whether accounts, QOS, associations and reservations that were made by hand are removed. Default: they are
    reported and stay."""

    cpu: Cpu = "50m"
    """CPU that slurmdbd asks Kubernetes for."""

    memory: Memory = "128Mi"
    """Memory that slurmdbd asks Kubernetes for; at least 32Mi. There is no limit: a large report must not kill it."""

    settings: Settings = Field(default_factory=dict)
    """Any key of slurmdbd.conf; it wins over our default."""

    @property
    def own_database(self) -> Database | None:
        """The MariaDB that the cluster brings along; None without accounting, and with an external server."""
        return self.database if self.enabled and self.database.external is None else None
