"""The exporter: metrics of Slurm for Prometheus."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from components.configuration import Configuration
from components.kit import pods, volumes, workloads
from components.kit.context import Scope
from components.secrets import Secrets
from config.cluster import ClusterConfig
from slurm.names import AGENT_PORT, CONTROLLER_HOST, EXPORTER, EXPORTER_PORT
from slurm.prometheus import is_private

UID = 953
"""A user whom Slurm does not know: it sees what any user sees, which is all where nothing is private."""

SLURM_UID = 64030
"""SlurmUser, as images/Containerfile makes it. Where data are private it alone sees them without being an operator."""


@dataclass(frozen=True, kw_only=True)
class ExporterArgs:
    """Inputs of `Exporter`."""

    scope: Scope
    secrets: Secrets
    configuration: Configuration
    config: ClusterConfig


class Exporter(pulumi.ComponentResource):
    """A Deployment of one pod, which asks Slurm every half minute, and its Service.

    It has no right in Kubernetes and nothing to keep: it may be restarted at any point.
    """

    service: k8s.core.v1.Service

    def __init__(self, name: str, args: ExporterArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slurmstack:index:Exporter", name, None, opts)
        self._child = pulumi.ResourceOptions(parent=self)
        scope = args.scope
        self.service = workloads.service(f"{name}-service", scope, EXPORTER, {"metrics": EXPORTER_PORT}, self._child)
        self.deployment = self._create_deployment(name, args)
        self.register_outputs({"service": self.service.metadata})

    def _create_deployment(self, name: str, args: ExporterArgs) -> k8s.apps.v1.Deployment:
        scope = args.scope
        pod = k8s.core.v1.PodSpecArgs(
            termination_grace_period_seconds=5,
            init_containers=[pods.munge_sidecar(scope.image("exporter"))],
            containers=[_exporter(args)],
            volumes=[*pods.munge_volumes(args.secrets.munge.metadata.name), args.configuration.files_as("config")],
        )
        placement = scope.cloud.placement("system")
        template = pods.pod_template(scope, EXPORTER, placement, pod, annotations=pods.scraped(EXPORTER_PORT))
        # Two would ask slurmctld twice as often and count everything twice.
        return workloads.deployment(name, scope, EXPORTER, template, self._child, strategy=workloads.never_two())


def _exporter(args: ExporterArgs) -> k8s.core.v1.ContainerArgs:
    config = args.config
    private = is_private(config)
    return k8s.core.v1.ContainerArgs(
        name=EXPORTER,
        image=args.scope.image("exporter"),
        command=pods.program(EXPORTER),
        env=pods.env(
            SLURM_CONF="/config/slurm/slurm.conf",
            AGENT_URL=f"http://{CONTROLLER_HOST}:{AGENT_PORT}",
            BY_PERSON="no" if private else "yes",
            ACCOUNTING="yes" if config.accounting.enabled else "no",
        ),
        security_context=pods.runs_as(SLURM_UID if private else UID),
        **pods.serving("metrics", EXPORTER_PORT, pods.http_probe("/healthz", EXPORTER_PORT, period=30, timeout=5)),
        volume_mounts=[pods.munge_mount(), volumes.mount("config", "/config/slurm", read_only=True)],
        resources=pods.resources(cpu="20m", memory="64Mi", memory_limit="2Gi"),
    )
