"""The exporter: figures for Prometheus that slurmctld does not give itself."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from components.configuration import Configuration
from components.kit.context import STARTING, Scope, waits
from components.kit.workload import (
    env,
    mount,
    munge_mount,
    munge_sidecar,
    munge_volumes,
    pod_template,
    program,
    resources,
    secret_volume,
    service_port,
    starting,
)
from components.secrets import Secrets
from slurm.names import AGENT_PORT, CONTROLLER_HOST, EXPORTER, EXPORTER_PORT

UID = 953
"""A user whom Slurm does not know: it sees what any user sees, which is all where nothing is private."""

SLURM_UID = 64030
"""SlurmUser, as images/Containerfile makes it. Where data are private it alone sees them without being an operator."""

_CERTIFICATE = "/secrets/rest"

_ANNOTATIONS = {
    "prometheus.io/scrape": "true",
    "prometheus.io/port": str(EXPORTER_PORT),
    "prometheus.io/path": "/metrics",
}
"""By which many a Prometheus finds what to read. A pod names one path with them; slurmctld has four, so it has none."""


@dataclass(frozen=True, kw_only=True)
class ExporterArgs:
    """Inputs of `Exporter`."""

    scope: Scope
    secrets: Secrets
    configuration: Configuration
    slurms_own: bool
    """Whether it gives figures of Slurm's own, too: slurmctld does not."""
    is_private: bool
    """Whether users may not see each other's records: it asks as SlurmUser then."""
    by_person: bool
    """Whether figures name users and accounts."""
    accounting: bool
    certificate: pulumi.Input[str] | None
    """Name of the Secret with the certificate of the REST API; None where there is none."""


class Exporter(pulumi.ComponentResource):
    """A Deployment of one pod, which asks Slurm every half minute, and its Service.

    It has no right in Kubernetes and nothing to keep: it may be restarted at any point.
    """

    service: k8s.core.v1.Service

    def __init__(self, name: str, args: ExporterArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slurmstack:index:Exporter", name, None, opts)
        self._child = pulumi.ResourceOptions(parent=self)
        scope = args.scope
        self.service = k8s.core.v1.Service(
            f"{name}-service",
            metadata=scope.metadata(EXPORTER, EXPORTER),
            spec=k8s.core.v1.ServiceSpecArgs(
                type="ClusterIP",
                selector=scope.selector(EXPORTER),
                ports=[service_port("metrics", EXPORTER_PORT)],
            ),
            opts=self._child,
        )
        self.deployment = self._create_deployment(name, args)
        self.register_outputs({"service": self.service.metadata})

    def _create_deployment(self, name: str, args: ExporterArgs) -> k8s.apps.v1.Deployment:
        scope, certificate = args.scope, args.certificate
        public = {"tls.crt": "tls.crt"}
        pod = k8s.core.v1.PodSpecArgs(
            termination_grace_period_seconds=5,
            init_containers=[munge_sidecar(scope.image("exporter"))],
            containers=[_exporter(args)],
            volumes=[
                *munge_volumes(args.secrets.munge.metadata.name),
                args.configuration.files_as("config"),
                *([] if certificate is None else [secret_volume("rest-tls", certificate, mode=0o444, files=public)]),
            ],
        )
        placement = scope.cloud.placement("system")
        template = pod_template(scope, scope.labels(EXPORTER), placement, pod, annotations=_ANNOTATIONS)
        return k8s.apps.v1.Deployment(
            f"{name}-pods",
            metadata=scope.metadata(EXPORTER, EXPORTER),
            spec=k8s.apps.v1.DeploymentSpecArgs(
                replicas=1,
                # Never two, which would ask slurmctld twice as often and count everything twice.
                strategy=k8s.apps.v1.DeploymentStrategyArgs(type="Recreate"),
                selector=scope.label_selector(EXPORTER),
                template=template,
            ),
            opts=self._child.merge(waits(STARTING)),
        )


def _exporter(args: ExporterArgs) -> k8s.core.v1.ContainerArgs:
    uid = SLURM_UID if args.is_private else UID
    values = {"SLURMS_OWN": args.slurms_own, "BY_PERSON": args.by_person, "ACCOUNTING": args.accounting}
    more = {} if args.certificate is None else {"CERTIFICATES": f"rest={_CERTIFICATE}/tls.crt"}
    healthz = k8s.core.v1.HTTPGetActionArgs(port=EXPORTER_PORT, path="/healthz")
    probe = k8s.core.v1.ProbeArgs(http_get=healthz, period_seconds=30, timeout_seconds=5, failure_threshold=3)
    return k8s.core.v1.ContainerArgs(
        name=EXPORTER,
        image=args.scope.image("exporter"),
        command=program(EXPORTER),
        env=env(
            SLURM_CONF="/config/slurm/slurm.conf",
            AGENT_URL=f"http://{CONTROLLER_HOST}:{AGENT_PORT}",
            **{name: "yes" if value else "no" for name, value in values.items()},
            **more,
        ),
        ports=[k8s.core.v1.ContainerPortArgs(name="metrics", container_port=EXPORTER_PORT)],
        security_context=k8s.core.v1.SecurityContextArgs(run_as_user=uid, run_as_group=uid, run_as_non_root=True),
        readiness_probe=probe,
        startup_probe=starting(probe),
        volume_mounts=[
            munge_mount(),
            mount("config", "/config/slurm", read_only=True),
            *([] if args.certificate is None else [mount("rest-tls", _CERTIFICATE, read_only=True)]),
        ],
        resources=resources(cpu="20m", memory="64Mi", memory_limit="2Gi"),
    )
