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

    It may be restarted at any point. It is in a pod of its own so that slurmctld does not have its rights.
    """

    def __init__(self, name: str, args: ElasticArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slurmstack:index:Elastic", name, None, opts)
        scope, child = args.scope, children_of(self, opts)
        rules = [
            rbac.rule("pods", "list", "watch", "delete", *(["create"] if args.pools else [])),
            rbac.rule("statefulsets", "list", "watch", group="apps"),
            rbac.rule("podtemplates", "list", "watch"),
        ]
        account = rbac.account(name, scope, ELASTIC, rules, child)
        if args.pools and scope.config.cluster.admission_policy:
            hold_to_workers(name, scope, args.pools)
        if args.pools:
            workloads.service(f"{name}-service", scope, ELASTIC, {"http": ELASTIC_PORT}, child)
        pod = _pod(args, account.metadata.name)
        template = pods.pod_template(scope, ELASTIC, scope.cloud.placement("system"), pod, leaves_after=LEAVES_AFTER)
        # Each of two would take what the other has just begun for something that went wrong.
        workloads.deployment(name, scope, ELASTIC, template, child, strategy=workloads.never_two())
        self.register_outputs({})


def _pod(args: ElasticArgs, account: pulumi.Output[str]) -> k8s.core.v1.PodSpecArgs:
    image = args.scope.image("controller")
    config = volumes.mount("config", "/config/slurm", read_only=True)
    elastic = k8s.core.v1.ContainerArgs(
        name=ELASTIC,
        image=image,
        command=pods.program(ELASTIC),
        env=pods.env(SLURM_CONF="/config/slurm/slurm.conf", NAMESPACE=args.scope.name),
        ports=[k8s.core.v1.ContainerPortArgs(name="http", container_port=ELASTIC_PORT)],
        readiness_probe=pods.http_probe("/healthz", ELASTIC_PORT, period=10),
        volume_mounts=[pods.munge_mount(), config, pods.token_mount()],
        # A look at 5,000 nodes, and a thread for each of 500 jobs that wait.
        resources=pods.resources(cpu="20m", memory="64Mi", memory_limit="1Gi"),
    )
    munge = pods.munge_volumes(args.secrets.munge.metadata.name)
    return k8s.core.v1.PodSpecArgs(
        service_account_name=account,
        termination_grace_period_seconds=10,
        dns_config=args.scope.node_dns,
        init_containers=[pods.munge_sidecar(image)],
        containers=[elastic],
        volumes=[*munge, args.configuration.files_as("config"), pods.token_volume()],
    )
