"""Dashboards for a Grafana of somebody else's."""

from __future__ import annotations

import pulumi
import pulumi_kubernetes as k8s

from components.kit.context import ClusterArgs

_LABEL = {"grafana_dashboard": "1"}
"""By which the sidecar of Grafana's own chart and of kube-prometheus-stack finds dashboards."""


class GrafanaDashboards(pulumi.ComponentResource):
    """A ConfigMap with all dashboards, which is changed in place: the sidecar follows it."""

    def __init__(self, name: str, args: ClusterArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slurmstack:index:GrafanaDashboards", name, None, opts)
        from slurm.dashboards.grafana import dashboard_files  # noqa: PLC0415  a fifth of a second, for those who ask

        metadata = args.scope.metadata("grafana-dashboards", "monitoring")
        metadata.labels = {**args.scope.labels("monitoring"), **_LABEL}
        k8s.core.v1.ConfigMap(
            f"{name}-files",
            metadata=metadata,
            data=dashboard_files(args.config),
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.register_outputs({})
