"""kube-state-metrics: figures of the cluster's own pods and volumes for its own Prometheus."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from components.kit.confinement import token_mount, token_volume
from components.kit.context import STARTING, Scope, waits
from components.kit.rbac import allow, rule
from components.kit.workload import pod_template, resources, service_port, starting
from slurm.names import KUBE_STATE, KUBE_STATE_PORT
from slurm.prometheus import RESOURCES, kube_figures

UID = 65534
"""Nobody, as upstream's image has it."""

_OWN_FIGURES_PORT = 8081


@dataclass(frozen=True, kw_only=True)
class KubeStateArgs:
    """Inputs of `KubeState`."""

    scope: Scope
    image: str
    """Full name of an image whose entrypoint is the program."""


class KubeState(pulumi.ComponentResource):
    """A Deployment of one pod and its Service.

    It may list pods, claims and what makes pods, in this namespace alone: no Secret, nothing of the machines.
    """

    def __init__(self, name: str, args: KubeStateArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slurmstack:index:KubeState", name, None, opts)
        scope = args.scope
        child = pulumi.ResourceOptions(parent=self)
        metadata = scope.metadata(KUBE_STATE, KUBE_STATE)
        account = k8s.core.v1.ServiceAccount(f"{name}-account", metadata=metadata, opts=child)
        allow(
            name, metadata, account, [rule(kind, "list", "watch", group=RESOURCES[kind]) for kind in RESOURCES], child
        )
        k8s.core.v1.Service(
            f"{name}-service",
            metadata=metadata,
            spec=k8s.core.v1.ServiceSpecArgs(
                type="ClusterIP",
                selector=scope.selector(KUBE_STATE),
                ports=[service_port("metrics", KUBE_STATE_PORT)],
            ),
            opts=child,
        )
        pod = k8s.core.v1.PodSpecArgs(
            service_account_name=account.metadata.name,
            termination_grace_period_seconds=5,
            containers=[_container(args)],
            volumes=[token_volume(mode=0o444)],
        )
        template = pod_template(scope, scope.labels(KUBE_STATE), scope.cloud.placement("system"), pod)
        k8s.apps.v1.Deployment(
            f"{name}-pods",
            metadata=metadata,
            spec=k8s.apps.v1.DeploymentSpecArgs(
                replicas=1, selector=scope.label_selector(KUBE_STATE), template=template
            ),
            opts=child.merge(waits(STARTING)),
        )
        self.register_outputs({})


def _container(args: KubeStateArgs) -> k8s.core.v1.ContainerArgs:
    healthz = k8s.core.v1.HTTPGetActionArgs(port=KUBE_STATE_PORT, path="/healthz")
    probe = k8s.core.v1.ProbeArgs(http_get=healthz, period_seconds=30, timeout_seconds=5, failure_threshold=3)
    return k8s.core.v1.ContainerArgs(
        name=KUBE_STATE,
        image=args.image,
        args=[
            f"--namespaces={args.scope.name}",
            f"--resources={','.join(RESOURCES)}",
            f"--metric-allowlist={','.join(kube_figures())}",
            f"--port={KUBE_STATE_PORT}",
            # Figures of its own, which nobody reads.
            "--telemetry-host=127.0.0.1",
            f"--telemetry-port={_OWN_FIGURES_PORT}",
        ],
        ports=[k8s.core.v1.ContainerPortArgs(name="metrics", container_port=KUBE_STATE_PORT)],
        security_context=k8s.core.v1.SecurityContextArgs(run_as_user=UID, run_as_group=UID, run_as_non_root=True),
        readiness_probe=probe,
        startup_probe=starting(probe),
        volume_mounts=[token_mount()],
        resources=resources(cpu="5m", memory="32Mi", memory_limit="512Mi"),
        termination_message_policy="FallbackToLogsOnError",
    )
