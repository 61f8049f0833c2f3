"""The program that makes and ends pods of elastic pools as needed, and replaces old workers."""

from __future__ import annotations

from collections.abc import Sequence

import pulumi
import pulumi_kubernetes as k8s

from components.configuration import Configuration
from components.elastic_admission import hold_to_workers
from components.kit import pods, rbac, volumes, workloads
from components.kit.context import Scope, children_of
from components.secrets import Secrets
from slurm.names import ELASTIC, ELASTIC_PORT


class Elastic(pulumi.ComponentResource):
    """A Deployment of one pod, and the Service by which slurmctld's programs ask it.

    It may be restarted at any point. It is in a pod of its own so that slurmctld does not have its rights.
    """

    def __init__(
        self,
        name: str,
        scope: Scope,
        secrets: Secrets,
        files: Configuration,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("slurmstack:index:Elastic", name, None, opts)
        child, pools = children_of(self, opts), scope.config.elastic_pools
        rules = [
            rbac.rule("pods", "list", "watch", "delete", *(["create"] if pools else [])),
            rbac.rule("statefulsets", "list", "watch", group="apps"),
            rbac.rule("podtemplates", "list", "watch"),
        ]
        account = rbac.account(name, scope, ELASTIC, rules, child)
        if pools and scope.config.cluster.admission_policy:
            hold_to_workers(name, scope)
        if pools:
            workloads.service(f"{name}-service", scope, ELASTIC, {"http": ELASTIC_PORT}, child)
        used = [*pods.munge_volumes(secrets.munge.metadata.name), files.files_as("config"), pods.token_volume()]
        pod = _pod(scope, account.metadata.name, used)
        # Seconds after which it is started elsewhere when its machine is lost: until then no node comes or goes.
        template = pods.pod_template(scope, ELASTIC, scope.cloud.placement("system"), pod, leaves_after=5)
        # Each of two would take what the other has just begun for something that went wrong.
        workloads.deployment(name, scope, ELASTIC, template, child, strategy=workloads.never_two())
        self.register_outputs({})


def _pod(scope: Scope, account: pulumi.Output[str], used: Sequence[k8s.core.v1.VolumeArgs]) -> k8s.core.v1.PodSpecArgs:
    image = scope.image("controller")
    config = volumes.mount("config", "/config/slurm", read_only=True)
    elastic = k8s.core.v1.ContainerArgs(
        name=ELASTIC,
        image=image,
        command=pods.program(ELASTIC),
        env=pods.env(SLURM_CONF="/config/slurm/slurm.conf", NAMESPACE=scope.name),
        ports=[k8s.core.v1.ContainerPortArgs(name="http", container_port=ELASTIC_PORT)],
        readiness_probe=pods.http_probe("/healthz", ELASTIC_PORT, period=10),
        volume_mounts=[pods.munge_mount(), config, pods.token_mount()],
        # A look at 5,000 nodes, and a thread for each of 500 jobs that wait.
        resources=pods.resources(cpu="20m", memory="64Mi", memory_limit="1Gi"),
    )
    return k8s.core.v1.PodSpecArgs(
        service_account_name=account,
        termination_grace_period_seconds=10,
        dns_config=scope.node_dns,
        init_containers=[pods.munge_sidecar(image)],
        containers=[elastic],
        volumes=used,
    )
