"""`slurmstack:monitoring`: what is measured, who collects it, and where people look at it."""

from __future__ import annotations

from pydantic import Field, model_validator

from config.base import Section


class Monitoring(Section):
    """Figures of Slurm, its nodes and its jobs for Prometheus.

    Without `install` and `existing` the pods only carry the annotations (`prometheus.io/scrape`, `port`, `path`) by
    which many a Prometheus finds them.
    """

    enabled: bool = Field(default=False, strict=True)
    """Whether the figures are there to be collected. `install` and `existing` say so, too."""
    install: bool = Field(default=False, strict=True)
    """Run Prometheus, Alertmanager, and what gives figures of machines and Kubernetes, in the cluster's namespace."""
    existing: bool = Field(default=False, strict=True)
    """Give a Prometheus operator that is there already what it reads: ServiceMonitors, PrometheusRules, and dashboards
    in ConfigMaps that Grafana's sidecar finds."""

    @property
    def is_on(self) -> bool:
        """Whether anything is measured."""
        return self.enabled or self.install or self.existing

    @model_validator(mode="after")
    def _one_way(self) -> Monitoring:
        if self.install and self.existing:
            raise ValueError("has both install and existing: either Prometheus is installed, or there is one already")
        return self
