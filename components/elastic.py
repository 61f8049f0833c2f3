"""The program that makes and ends pods of elastic pools as needed, and replaces old workers."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from components.configuration import Configuration
from components.elastic_admission import hold_to_workers
from components.kit import pods, rbac, volumes, workloads
from components.kit.context import Scope, children_of
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
    pools: tuple[str, ...]
    """Names of the elastic pools."""


class Elastic(pulumi.ComponentResource):
    """A Deployment of one pod, and the Service by which slurmctld's programs ask it.

    What it needs to know is in Slurm's records and in the pools' PodTemplates, so it may be restarted at any point. It
    is in a pod of its own so that slurmctld does not have its rights: who may make or end pods may any.
    """

    def __init__(self, name: str, args: ElasticArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slurmstack:index:Elastic", name, None, opts)
        self._child = children_of(self, opts)
        scope = args.scope
        rules = [
            rbac.rule("pods", "list", "watch", "delete", *(["create"] if args.pools else [])),
            rbac.rule("statefulsets", "list", "watch", group="apps"),
            rbac.rule("podtemplates", "list", "watch"),
        ]
        self._account = rbac.account(name, scope, ELASTIC, rules, self._child)
        if args.pools and scope.config.cluster.admission_policy:
            hold_to_workers(name, scope, args.pools)
        if args.pools:
            workloads.service(f"{name}-service", scope, ELASTIC, {"http": ELASTIC_PORT}, self._child)
        self.deployment = self._create_deployment(name, args)
        self.register_outputs({})

    def _create_deployment(self, name: str, args: ElasticArgs) -> k8s.apps.v1.Deployment:
        scope = args.scope
        of_slurm = [*pods.munge_volumes(args.secrets.munge.metadata.name), args.configuration.files_as("config")]
        pod = k8s.core.v1.PodSpecArgs(
            service_account_name=self._account.metadata.name,
            termination_grace_period_seconds=10,
            dns_config=scope.node_dns,
            init_containers=[pods.munge_sidecar(scope.image("controller"))],
            containers=[_elastic(args)],
            volumes=[*of_slurm, pods.token_volume()],
        )
        placement = scope.cloud.placement("system")
        template = pods.pod_template(scope, ELASTIC, placement, pod, leaves_after=LEAVES_AFTER)
        # Each of two would take what the other has just begun for something that went wrong.
        return workloads.deployment(name, scope, ELASTIC, template, self._child, strategy=workloads.never_two())


def _elastic(args: ElasticArgs) -> k8s.core.v1.ContainerArgs:
    of_slurm = [pods.munge_mount(), volumes.mount("config", "/config/slurm", read_only=True)]
    return k8s.core.v1.ContainerArgs(
        name=ELASTIC,
        image=args.scope.image("controller"),
        command=pods.program(ELASTIC),
        env=pods.env(
            SLURM_CONF="/config/slurm/slurm.conf",
            NAMESPACE=args.scope.name,
        ),
        ports=[k8s.core.v1.ContainerPortArgs(name="http", container_port=ELASTIC_PORT)],
        readiness_probe=pods.http_probe("/healthz", ELASTIC_PORT, period=10),
        volume_mounts=[*of_slurm, pods.token_mount()],
        # A look at 5,000 nodes, and a thread for each of 500 jobs that wait.
        resources=pods.resources(cpu="20m", memory="64Mi", memory_limit="1Gi"),
    )
