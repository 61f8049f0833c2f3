"""An existing Prometheus: what tells it, through its operator, what to read and which rules hold."""

from __future__ import annotations

import pulumi
from pulumi_kubernetes.apiextensions import CustomResource

from components.kit.context import ClusterArgs
from slurm.names import EXPORTER, WORKER
from slurm.prometheus import API, Spec, exporter_monitor, jobs_monitor, rules

_COMPONENT = "monitoring"


class PrometheusOperator(pulumi.ComponentResource):
    """Objects that a Prometheus operator reads; nothing of them runs.

    The operator and its API are somebody else's, and must be there before.
    """

    def __init__(self, name: str, args: ClusterArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slurmstack:index:PrometheusOperator", name, None, opts)
        self._name, self._args = name, args
        self._child = pulumi.ResourceOptions(parent=self)
        config, selector = args.config, args.scope.selector
        self._create("ServiceMonitor", EXPORTER, exporter_monitor(config, selector(EXPORTER)))
        self._create("PodMonitor", "workers", jobs_monitor(config, selector(WORKER)))
        self._create("PrometheusRule", "slurm", rules(config))
        self.register_outputs({})

    def _create(self, kind: str, name: str, spec: Spec) -> None:
        metadata = self._args.scope.metadata(name, _COMPONENT)
        existing = self._args.config.monitoring.existing
        assert existing is not None
        # By which the Prometheus selects these objects.
        metadata.labels = {**existing.labels, **self._args.scope.labels(_COMPONENT)}
        CustomResource(
            f"{self._name}-{kind.lower()}-{name}",
            api_version=API,
            kind=kind,
            metadata=metadata,
            spec=spec,
            opts=self._child,
        )
