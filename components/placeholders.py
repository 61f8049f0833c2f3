"""Placeholders: pods that keep machines warm for nodes of elastic pools, and give way to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from components.clouds.base import Placement
from components.kit.context import Scope, apart, children_of
from components.kit.workload import DISK, pod_template
from components.workers import NO_AWAIT
from config.base import parse_bytes, parse_cpus
from slurm.names import PLACEHOLDER

PRIORITY = -10
"""Below all pods without a PriorityClass, which have 0. Cluster Autoscaler makes no machine for less than -10 (its
option --expendable-pods-priority-cutoff)."""

UID = 65534
"""Nobody."""

_OF_ALL = ("cpu", "memory", "ephemeral-storage")
"""What containers ask for besides devices."""


@dataclass(frozen=True, kw_only=True)
class PlaceholdersArgs:
    """Inputs of `Placeholders`."""

    scope: Scope
    machines: Mapping[str, int]
    """By pool: how many are kept warm. Pools with 0 have no placeholders."""
    templates: Mapping[str, k8s.core.v1.PodTemplateSpecArgs]
    """By pool: its workers' pods."""


class Placeholders(pulumi.ComponentResource):
    """A Deployment for each pool that keeps machines warm, and the PriorityClass of their pods.

    Each pod asks for as much as a worker of its pool and does nothing. A worker that finds no room takes a
    placeholder's, and the placeholder then waits: that has whoever adds machines add the next one. No update waits for
    them.
    """

    def __init__(self, name: str, args: PlaceholdersArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slurmstack:index:Placeholders", name, None, apart(opts))
        self._scope, self._child = args.scope, children_of(self, opts)
        self._class = k8s.scheduling.v1.PriorityClass(
            f"{name}-priority",
            # Its name is shared by all clusters in one Kubernetes, so the namespace is in it.
            metadata=k8s.meta.v1.ObjectMetaArgs(
                name=f"{args.scope.name}-{PLACEHOLDER}", labels=args.scope.labels(PLACEHOLDER)
            ),
            value=PRIORITY,
            preemption_policy="Never",
            description="Pods that hold a place for Slurm nodes and give way to them",
            opts=pulumi.ResourceOptions(parent=self),
        )
        for pool, machines in args.machines.items():
            if machines:
                self._create_deployment(f"{name}-{pool}", pool, machines, args.templates[pool])
        self.register_outputs({})

    def _create_deployment(self, name: str, pool: str, machines: int, worker: k8s.core.v1.PodTemplateSpecArgs) -> None:
        scope = self._scope
        # No label `slurmstack/pool`: by it everybody finds workers.
        labels = {PLACEHOLDER: pool}
        metadata = scope.metadata(f"{PLACEHOLDER}-{pool}", PLACEHOLDER, **labels)
        metadata.annotations = {"pulumi.com/waitFor": NO_AWAIT}
        like: Any = worker.spec
        pod = k8s.core.v1.PodSpecArgs(
            priority_class_name=self._class.metadata.name,
            termination_grace_period_seconds=0,
            security_context=k8s.core.v1.PodSecurityContextArgs(
                run_as_user=UID, run_as_group=UID, run_as_non_root=True
            ),
            containers=[_container(like)],
        )
        template = pod_template(scope, scope.labels(PLACEHOLDER, **labels), Placement(), pod)
        pod.node_selector, pod.tolerations = like.node_selector, like.tolerations
        k8s.apps.v1.Deployment(
            f"{name}-pods",
            metadata=metadata,
            spec=k8s.apps.v1.DeploymentSpecArgs(
                replicas=machines,
                # A new one takes an old one's place, and no machine more.
                strategy=k8s.apps.v1.DeploymentStrategyArgs(type="Recreate"),
                selector=scope.label_selector(PLACEHOLDER, **labels),
                template=template,
            ),
            opts=self._child,
        )


def _container(worker: Any) -> k8s.core.v1.ContainerArgs:
    """It sleeps. The image is the worker's, which its machine then has already."""
    (slurmd,) = [container for container in worker.containers if container.name == "slurmd"]
    requests = _requests(worker)
    devices = {name: amount for name, amount in requests.items() if name not in _OF_ALL}
    return k8s.core.v1.ContainerArgs(
        name=PLACEHOLDER,
        image=slurmd.image,
        command=["/usr/bin/tini", "--", "sleep", "infinity"],
        resources=k8s.core.v1.ResourceRequirementsArgs(
            requests=requests, limits={"memory": requests["memory"], "ephemeral-storage": DISK, **devices}
        ),
    )


def _requests(worker: Any) -> dict[str, str]:
    """What a worker's pod asks for in all: less would keep a machine on which the worker has no room."""
    millis, amounts = 0, Counter[str]()
    for container in (*(worker.init_containers or ()), *worker.containers):  # the former are sidecars, which stay
        asked = dict(container.resources.requests)
        millis += round(1000 * parse_cpus(asked.pop("cpu")))
        for name, amount in asked.items():
            amounts[name] += parse_bytes(amount) if name in _OF_ALL else int(amount)
    return {"cpu": f"{millis}m", **{name: str(amount) for name, amount in amounts.items()}}
