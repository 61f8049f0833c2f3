"""The node exporter: figures of the workers' machines for the cluster's own Prometheus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from components.clouds.base import Placement
from components.kit import pods, volumes, workloads
from components.kit.context import STARTING, Scope, waits
from slurm.dashboards.boards import MACHINE_INFO
from slurm.names import NODE_EXPORTER, NODE_EXPORTER_PORT

UID = 954
"""The user `prometheus` of images/Containerfile."""

_COLLECTORS = ("cpu", "meminfo", "loadavg", "diskstats", "infiniband", "textfile")
"""Those with figures of the machine. Network interfaces would be the pod's own."""

_TOLD = "/run/told"

_START = f"""\
echo "{MACHINE_INFO}{{machine=\\"$MACHINE\\"}} 1" > {_TOLD}/machine.prom && exec /usr/bin/prometheus-node-exporter "$@"
"""
"""Prometheus knows the pod's address only."""


@dataclass(frozen=True, kw_only=True)
class NodeExporterArgs:
    """Inputs of `NodeExporter`."""

    scope: Scope
    placements: Sequence[Placement]
    """Of all pools."""


class NodeExporter(pulumi.ComponentResource):
    """A DaemonSet on the machines that workers may run on, and a headless Service, by which Prometheus finds its pods.

    It reads the machine's /proc and /sys as a user without any right, and has no other part of the machine.
    """

    def __init__(self, name: str, args: NodeExporterArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slurmstack:index:NodeExporter", name, None, opts)
        scope = args.scope
        child = pulumi.ResourceOptions(parent=self)
        k8s.core.v1.Service(
            f"{name}-service",
            metadata=scope.metadata(NODE_EXPORTER, NODE_EXPORTER),
            spec=k8s.core.v1.ServiceSpecArgs(
                cluster_ip="None",
                selector=scope.selector(NODE_EXPORTER),
                ports=[workloads.service_port("metrics", NODE_EXPORTER_PORT)],
            ),
            opts=child,
        )
        pod = k8s.core.v1.PodSpecArgs(
            termination_grace_period_seconds=5,
            affinity=_affinity([placement.node_selector for placement in args.placements]),
            containers=[_container(scope)],
            volumes=[
                volumes.host_directory("proc", "/proc"),
                volumes.host_directory("sys", "/sys"),
                volumes.memory_dir("told", size_limit="1Mi"),
            ],
        )
        tolerations = dict.fromkeys(one for placement in args.placements for one in placement.tolerations)
        template = pods.pod_template(scope, NODE_EXPORTER, Placement(tolerations=tuple(tolerations)), pod)
        # The kernel maps no ids in a machine's /proc and /sys; this user is nobody on the machine anyway.
        pod.host_users = None
        k8s.apps.v1.DaemonSet(
            f"{name}-pods",
            metadata=scope.metadata(NODE_EXPORTER, NODE_EXPORTER),
            spec=k8s.apps.v1.DaemonSetSpecArgs(selector=scope.label_selector(NODE_EXPORTER), template=template),
            opts=child.merge(waits(STARTING)),
        )
        self.register_outputs({})


def _affinity(selectors: Sequence[Mapping[str, str]]) -> k8s.core.v1.AffinityArgs | None:
    """The machines of any pool; None: all, as a pool may run on all."""
    if not selectors or not all(selectors):
        return None
    terms = [
        k8s.core.v1.NodeSelectorTermArgs(
            match_expressions=[
                k8s.core.v1.NodeSelectorRequirementArgs(key=key, operator="In", values=[value])
                for key, value in selector.items()
            ]
        )
        for selector in {tuple(sorted(selector.items())): selector for selector in selectors}.values()
    ]
    wanted = k8s.core.v1.NodeSelectorArgs(node_selector_terms=terms)
    return k8s.core.v1.AffinityArgs(
        node_affinity=k8s.core.v1.NodeAffinityArgs(required_during_scheduling_ignored_during_execution=wanted)
    )


def _container(scope: Scope) -> k8s.core.v1.ContainerArgs:
    return k8s.core.v1.ContainerArgs(
        name=NODE_EXPORTER,
        image=scope.image("monitoring"),
        command=["/bin/sh", "-c", _START, NODE_EXPORTER],
        args=[
            "--path.procfs=/machine/proc",
            "--path.sysfs=/machine/sys",
            "--collector.disable-defaults",
            *(f"--collector.{name}" for name in _COLLECTORS),
            f"--collector.textfile.directory={_TOLD}",
            "--web.disable-exporter-metrics",
            f"--web.listen-address=:{NODE_EXPORTER_PORT}",
        ],
        env=[pods.field_env("MACHINE", "spec.nodeName")],
        security_context=pods.runs_as(UID),
        **pods.serving("metrics", NODE_EXPORTER_PORT, pods.tcp_probe(NODE_EXPORTER_PORT, period=30)),
        volume_mounts=[
            volumes.mount("proc", "/machine/proc", read_only=True),
            volumes.mount("sys", "/machine/sys", read_only=True),
            volumes.mount("told", _TOLD),
        ],
        resources=pods.resources(cpu="5m", memory="16Mi", memory_limit="128Mi"),
        termination_message_policy="FallbackToLogsOnError",
    )
