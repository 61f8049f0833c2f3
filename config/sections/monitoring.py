"""`slurmstack:monitoring`, `backup`: what is measured and who collects it, and backups."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from config.base import Matching, Quantity, Section, Span, Volume, once, span_of
from config.names import Image, LabelKey, LabelValue, NamespaceName, ObjectName, check_server, port_of

PageUrl = Annotated[
    str,
    Matching(
        r"^https?://[A-Za-z0-9][A-Za-z0-9.-]*(:[0-9]{1,5})?(/[A-Za-z0-9._~%@+:-]+)*/?$",
        "is not where a page is found: http:// or https://, a host, perhaps a port and a path, and no user, question "
        "mark or space, such as https://git.example.com/slurmstack/blob/main/docs/runbooks.md",
    ),
]
"""A URL to which `#name` is added."""


class ExistingPrometheus(Section):
    """A Prometheus of the Prometheus operator's, which is in the Kubernetes cluster already."""

    namespace: NamespaceName
    """Namespace of its pods, for example `monitoring`. Network policies let the pods of this one read metrics, and of
    no other."""
    labels: dict[LabelKey, LabelValue] = Field(default_factory=dict)
    """Labels by which it selects what it reads and its rules (`serviceMonitorSelector`, `podMonitorSelector`,
    `ruleSelector`). kube-prometheus-stack wants `release: NAME-OF-ITS-RELEASE`. Default: none, for one that selects
    all."""


class Monitoring(Section):
    """Metrics of Slurm, its nodes and its jobs for Prometheus.

    Without `install` and `existing` the pods only carry the annotations (`prometheus.io/scrape`, `port`, `path`) by
    which many a Prometheus finds them.
    """

    enabled: bool = Field(default=False, strict=True)
    """Whether the metrics are there to be collected. `install` and `existing` say so, too."""
    install: bool = Field(default=False, strict=True)
    """Run Prometheus and Alertmanager in the cluster's namespace."""
    existing: Annotated[ExistingPrometheus | None, BeforeValidator(lambda given: None if given is False else given)] = (
        None
    )
    """Let a Prometheus read them that a Prometheus operator runs. It takes the operator's API
    (`monitoring.coreos.com/v1`) in the Kubernetes cluster."""
    dashboards: bool | None = Field(default=None, strict=True)
    """Whether Grafana's dashboards are in the namespace. Default: with `existing`. They are a ConfigMap with
    the label `grafana_dashboard: "1"`, by which the sidecar of Grafana's charts finds them."""
    kube_state: bool = Field(default=False, strict=True)
    """Measure the cluster's objects in Kubernetes, too (pods, restarts, claims), with kube-state-metrics. It may
    list these in the cluster's namespace and nothing else. Needs `install`; an `existing` Prometheus has its own as a
    rule."""
    kube_state_image: Image | None = None
    """Full name of an image of kube-state-metrics, version 2.15 or so, for `kube_state`. Default: on the local cluster
    one that is built there from its Go module. Required elsewhere: none of ours is published."""
    storage: Volume = "20Gi"
    """Size of Prometheus' volume, with `install`; at least 100Mi. It can grow but never shrink. Four fifths of it are
    for metrics: where they need more, the oldest go before `retention` is over."""
    storage_class: ObjectName | None = None
    """Storage class of that volume. Default: a static volume of the local cluster, else the Kubernetes
    cluster's default class."""
    retention: int = Field(default=15, ge=1, le=3650, strict=True)
    """Days that Prometheus keeps metrics, with `install`."""
    alertmanager_secret: ObjectName | None = None
    """Secret in the cluster's namespace with the key `alertmanager.yml`, which you make yourself. It says whom
    Alertmanager tells, and how. It is read at the start of the pod. Default: nobody is told; alerts are shown. Needs
    `install`."""
    runbooks: PageUrl | None = None
    """URL at which people who are told find docs/runbooks.md:
    `https://git.example.com/slurmstack/blob/main/docs/runbooks.md`. Alerts have it as `runbook_url`, with their section
    of the page added (`#slurmctlddown`). Default: alerts only have `runbook`, the section's path in the repository.
    Needs `install` or `existing`."""

    @property
    def is_on(self) -> bool:
        """Whether anything is measured."""
        return self.enabled or self.install or self.existing is not None

    @property
    def has_dashboards(self) -> bool:
        """Whether Grafana's dashboards are made."""
        return self.existing is not None if self.dashboards is None else self.dashboards

    @property
    def has_kube_state(self) -> bool:
        """Whether there is kube-state-metrics of ours."""
        return self.install and self.kube_state

    def _problem(self) -> str | None:
        both = self.install and self.existing is not None
        return "has both install and existing: one Prometheus reads the metrics; remove one of them" if both else None


Schedule = Annotated[
    str,
    Matching(
        r"^ *[0-9*,/-]+( +[0-9*,/-]+){4} *$",
        "is not a schedule: five fields (minute, hour, day, month, weekday) of numbers, such as '0 2 * * *'",
    ),
    AfterValidator(lambda text: " ".join(text.split())),
]


class Keep(Section):
    """Backups that are kept; what is older goes. A backup may count for several of them."""

    last: int = Field(default=3, ge=0, le=10_000, strict=True)
    """The last ones, whenever they were made."""
    daily: int = Field(default=7, ge=0, le=10_000, strict=True)
    """The last one of a day, for so many days."""
    weekly: int = Field(default=5, ge=0, le=10_000, strict=True)
    """The last one of a week, for so many weeks."""
    monthly: int = Field(default=12, ge=0, le=10_000, strict=True)
    """The last one of a month, for so many months."""


class Backup(Section):
    """Where backups go, when they are made, and how many are kept (docs/backups.md)."""

    endpoint: Annotated[
        str,
        Matching(
            r"^https?://[A-Za-z0-9.:\[\]-]+$",
            "is not the address of an S3 store: https://HOST or https://HOST:PORT, without a path",
        ),
        AfterValidator(check_server),
    ]
    """The S3 store, for example `https://storage.example.com`. `http://` sends what is encrypted anyway, but the
    signatures of the access key too."""
    bucket: Annotated[
        str,
        Matching(
            r"^(?!.*[.]{2})(?![0-9.]+$)[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$",
            "is not the name of a bucket: 3 to 63 small letters, digits, '-' and single '.', and no address",
        ),
    ]
    """The bucket. Where there is none, it is made, if the access key may."""
    prefix: (
        Annotated[
            str,
            Matching(
                r"^[A-Za-z0-9_-][A-Za-z0-9_.-]*(/[A-Za-z0-9_-][A-Za-z0-9_.-]*)*$",
                "is not a folder in a bucket: letters, digits, '_', '.' and '-', with '/' between names",
            ),
            Field(max_length=200),
        ]
        | None
    ) = None
    """Folder in the bucket, which no other cluster may have. Default: the namespace's name."""
    region: str = Field(default="us-east-1", pattern=r"^[a-z0-9-]{1,64}$")
    """Region that the store expects in signatures."""
    credentials_secret: ObjectName
    """Secret in the namespace, which you make, with the keys `access-key-id`, `secret-access-key` and `password`. The
    last encrypts the backups: without it nobody can read them, so keep it outside of the cluster too. `ca.crt`, where
    the store's certificate is of an authority of your own."""
    schedule: Schedule = "0 2 * * *"
    """When a backup is made, as cron has it, in UTC."""
    rehearse: Schedule | None = "0 5 * * 0"
    """When the last backup is rehearsed, on Sundays by default. null: by `slurmstack backup rehearse` alone."""
    keep: Keep = Field(default_factory=Keep)
    """Backups that are kept."""
    exclude: Annotated[
        tuple[
            Annotated[
                str,
                Matching(
                    r"^(/(?![.]{1,2}(/|$))[^/*?\[\]\\\x00-\x1f\x7f]+)+$",
                    "is not a path such as /scratch, without wildcards, '..' and a '/' at its end",
                ),
            ],
            ...,
        ],
        AfterValidator(once),
    ] = ()
    """Paths in the jail that are left out. `/tmp`, `/var/tmp` and `/run` always are."""
    largest_file: Quantity = "1Ti"
    """Files of the jail that are larger are left out. A file of mere holes, which takes no room, has a size too."""
    bandwidth: Quantity | None = None
    """Bytes a second to and from the store, at most. Default: no bound. Of CPUs it takes two, and what others leave."""
    time_limit: Annotated[Span, span_of(60, 7 * 86_400)] = "12h"
    """How long a backup or a rehearsal may take before it is given up."""

    @property
    def port(self) -> int:
        """TCP port of the store."""
        return port_of(self.endpoint)

    def repository(self, namespace: str) -> str:
        """URL of the repository of a cluster in this namespace."""
        return f"{self.endpoint}/{self.bucket}/{self.prefix or namespace}"
