"""kube-state-metrics: figures of the cluster's own pods and volumes for its own Prometheus."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from components.kit import pods, rbac, workloads
from components.kit.context import Scope
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

        rules = [rbac.rule(kind, "list", "watch", group=group) for kind, group in RESOURCES.items()]
        account = rbac.account(name, scope, KUBE_STATE, rules, child)
        workloads.service(f"{name}-service", scope, KUBE_STATE, {"metrics": KUBE_STATE_PORT}, child)
        pod = k8s.core.v1.PodSpecArgs(
            service_account_name=account.metadata.name,
            termination_grace_period_seconds=5,
            containers=[_container(args)],
            volumes=[pods.token_volume(mode=0o444)],
        )
        template = pods.pod_template(scope, KUBE_STATE, scope.cloud.placement("system"), pod)
        workloads.deployment(name, scope, KUBE_STATE, template, child)
        self.register_outputs({})


def _container(args: KubeStateArgs) -> k8s.core.v1.ContainerArgs:
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
        security_context=pods.runs_as(UID),
        **pods.serving("metrics", KUBE_STATE_PORT, pods.http_probe("/healthz", KUBE_STATE_PORT, period=30, timeout=5)),
        volume_mounts=[pods.token_mount()],
        resources=pods.resources(cpu="5m", memory="32Mi", memory_limit="512Mi"),
        termination_message_policy="FallbackToLogsOnError",
    )
