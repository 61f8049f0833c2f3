"""The program that makes and ends pods of elastic pools as needed, and replaces old workers."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from components.configuration import Configuration
from components.kit.confinement import token_mount, token_volume
from components.kit.context import STARTING, Scope, children_of, waits
from components.kit.rbac import allow, rule
from components.kit.workload import (
    env,
    mount,
    munge_mount,
    munge_sidecar,
    munge_volumes,
    pod_template,
    program,
    resources,
    service_port,
)
from components.secrets import Secrets
from slurm.names import ELASTIC, ELASTIC_PORT

LEAVES_AFTER = 5
"""Seconds until it is started elsewhere when its machine is lost: until then no node comes or goes."""


@dataclass(frozen=True, kw_only=True)
class ElasticArgs:
    """Inputs of `Elastic`."""

    scope: Scope
    secrets: Secrets
    configuration: Configuration
    pools: bool
    """Whether there are elastic pools."""

    @property
    def rules(self) -> list[k8s.rbac.v1.PolicyRuleArgs]:
        """The program's rights."""
        return [
            rule("pods", "list", "watch", "delete", *(["create"] if self.pools else [])),
            rule("statefulsets", "list", "watch", group="apps"),
            *([rule("podtemplates", "list", "watch")] if self.pools else []),
        ]


class Elastic(pulumi.ComponentResource):
    """A Deployment of one pod, and the Service by which slurmctld's programs ask it.

    What it needs to know is in Slurm's records and in the pools' PodTemplates, so it may be restarted at any point. It
    is in a pod of its own so that slurmctld does not have its rights: who may make or end pods may any.
    """

    def __init__(self, name: str, args: ElasticArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slurmstack:index:Elastic", name, None, opts)
        self._child = children_of(self, opts)
        scope = args.scope
        self._account = k8s.core.v1.ServiceAccount(
            f"{name}-account", metadata=scope.metadata(ELASTIC, ELASTIC), opts=self._child
        )
        allow(name, scope.metadata(ELASTIC, ELASTIC), self._account, args.rules, self._child)
        if args.pools:
            k8s.core.v1.Service(
                f"{name}-service",
                metadata=scope.metadata(ELASTIC, ELASTIC),
                spec=k8s.core.v1.ServiceSpecArgs(
                    type="ClusterIP", selector=scope.selector(ELASTIC), ports=[service_port("http", ELASTIC_PORT)]
                ),
                opts=self._child,
            )
        self.deployment = self._create_deployment(name, args)
        self.register_outputs({})

    def _create_deployment(self, name: str, args: ElasticArgs) -> k8s.apps.v1.Deployment:
        scope = args.scope
        of_slurm = [*munge_volumes(args.secrets.munge.metadata.name), args.configuration.files_as("config")]
        pod = k8s.core.v1.PodSpecArgs(
            service_account_name=self._account.metadata.name,
            termination_grace_period_seconds=10,
            dns_config=scope.node_dns,
            init_containers=[munge_sidecar(scope.image("controller"))],
            containers=[_elastic(args)],
            volumes=[*of_slurm, token_volume()],
        )
        placement = scope.cloud.placement("system")
        return k8s.apps.v1.Deployment(
            f"{name}-pods",
            metadata=scope.metadata(ELASTIC, ELASTIC),
            spec=k8s.apps.v1.DeploymentSpecArgs(
                replicas=1,
                # Never two at a time: each would take what the other has just begun for something that went wrong.
                strategy=k8s.apps.v1.DeploymentStrategyArgs(type="Recreate"),
                selector=scope.label_selector(ELASTIC),
                template=pod_template(scope, scope.labels(ELASTIC), placement, pod, leaves_after=LEAVES_AFTER),
            ),
            opts=self._child.merge(waits(STARTING)),
        )


def _elastic(args: ElasticArgs) -> k8s.core.v1.ContainerArgs:
    healthy = k8s.core.v1.HTTPGetActionArgs(port=ELASTIC_PORT, path="/healthz")
    of_slurm = [munge_mount(), mount("config", "/config/slurm", read_only=True)]
    return k8s.core.v1.ContainerArgs(
        name=ELASTIC,
        image=args.scope.image("controller"),
        command=program(ELASTIC),
        env=env(
            **({} if args.pools else {"POOLS": "none"}),
            SLURM_CONF="/config/slurm/slurm.conf",
            NAMESPACE=args.scope.name,
        ),
        ports=[k8s.core.v1.ContainerPortArgs(name="http", container_port=ELASTIC_PORT)],
        readiness_probe=k8s.core.v1.ProbeArgs(http_get=healthy, period_seconds=10, failure_threshold=3),
        volume_mounts=[*of_slurm, token_mount()],
        resources=resources(cpu="20m", memory="64Mi"),
    )
