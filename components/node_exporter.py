"""The node exporter: figures of the workers' machines for the cluster's own Prometheus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from components.clouds.base import Placement
from components.kit.context import STARTING, Scope, waits
from components.kit.workload import empty_dir, mount, pod_template, resources, service_port, starting, tcp_probe
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
                ports=[service_port("metrics", NODE_EXPORTER_PORT)],
            ),
            opts=child,
        )
        pod = k8s.core.v1.PodSpecArgs(
            termination_grace_period_seconds=5,
            affinity=_affinity([placement.node_selector for placement in args.placements]),
            containers=[_container(scope)],
            volumes=[_machines_own("proc"), _machines_own("sys"), empty_dir("told", medium="Memory", size_limit="1Mi")],
        )
        tolerations = dict.fromkeys(one for placement in args.placements for one in placement.tolerations)
        placement = Placement(tolerations=tuple(tolerations))
        template = pod_template(scope, scope.labels(NODE_EXPORTER), placement, pod)
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


def _machines_own(name: str) -> k8s.core.v1.VolumeArgs:
    source = k8s.core.v1.HostPathVolumeSourceArgs(path=f"/{name}", type="Directory")
    return k8s.core.v1.VolumeArgs(name=name, host_path=source)


def _container(scope: Scope) -> k8s.core.v1.ContainerArgs:
    field = k8s.core.v1.ObjectFieldSelectorArgs(field_path="spec.nodeName")
    machine = k8s.core.v1.EnvVarArgs(name="MACHINE", value_from=k8s.core.v1.EnvVarSourceArgs(field_ref=field))
    probe = tcp_probe(NODE_EXPORTER_PORT, period=30)
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
        env=[machine],
        ports=[k8s.core.v1.ContainerPortArgs(name="metrics", container_port=NODE_EXPORTER_PORT)],
        security_context=k8s.core.v1.SecurityContextArgs(run_as_user=UID, run_as_group=UID, run_as_non_root=True),
        readiness_probe=probe,
        startup_probe=starting(probe),
        volume_mounts=[
            mount("proc", "/machine/proc", read_only=True),
            mount("sys", "/machine/sys", read_only=True),
            mount("told", _TOLD),
        ],
        resources=resources(cpu="5m", memory="16Mi", memory_limit="128Mi"),
        termination_message_policy="FallbackToLogsOnError",
    )
