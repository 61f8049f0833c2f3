"""`slurmstack:monitoring`: what is measured, who collects it, and where people look at it."""

from __future__ import annotations

from pydantic import Field, model_validator

from config.base import Section, Volume
from config.names import SecretName


class Monitoring(Section):
    """Figures of Slurm, its nodes and its jobs for Prometheus.

    Without `install` the pods only carry the annotations (`prometheus.io/scrape`, `port`, `path`) by
    which many a Prometheus finds them.
    """

    enabled: bool = Field(default=False, strict=True)
    """Whether the figures are there to be collected. `install` says so, too."""
    install: bool = Field(default=False, strict=True)
    """Run Prometheus and Alertmanager in the cluster's namespace."""
    existing: bool = Field(default=False, strict=True)
    """Reserved for a Prometheus operator that is there already; true is refused. Use `enabled`: a Prometheus finds the
    pods by their annotations."""
    storage: Volume = "20Gi"
    """Size of Prometheus' volume, with `install`; at least 100Mi. It can grow but never shrink. Four fifths of it are
    for figures: where they need more, the oldest go before `retention` is over."""
    storage_class: str | None = Field(default=None, min_length=1)
    """Storage class of that volume. Default: a static volume where the local cluster offers one, else the cluster's
    default class."""
    retention: int = Field(default=15, ge=1, le=3650, strict=True)
    """Days that Prometheus keeps figures, with `install`."""
    alertmanager_secret: SecretName | None = None
    """Secret in the cluster's namespace with the key `alertmanager.yml`, which you make yourself: whom Alertmanager
    tells, and how. It is read at the start of the pod. Default: nobody is told; alerts are shown. Needs `install`."""

    @property
    def is_on(self) -> bool:
        """Whether anything is measured."""
        return self.enabled or self.install or self.existing

    @model_validator(mode="after")
    def _what_can_be_had(self) -> Monitoring:
        if self.existing:
            raise ValueError(
                "has existing, which is not there yet; write enabled: true, with which the pods carry the annotations "
                "that many a Prometheus follows (docs/metrics.md), or install: true for a Prometheus of the cluster's"
            )
        useless = sorted(self.model_fields_set - {"enabled", "install", "existing"})
        if useless and not self.install:
            raise ValueError(f"has {', '.join(useless)}, but no Prometheus that it is for; set install: true, too")
        return self
