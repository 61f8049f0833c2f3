"""The REST API, and the dashboard: slurmrestd and a page for people, behind one TLS."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from components.configuration import Configuration
from components.kit import pods, volumes, workloads
from components.kit.context import Scope
from components.secrets import Secrets
from config.sections.services import Rest as RestConfig
from slurm.certificates import authority_certificate, certificate_names, server_certificate
from slurm.names import REST, REST_PORT

TLS_SECRET = "rest-tls"  # noqa: S105  the name of a Secret
"""Secret with the certificate, unless the stack file names one."""

UID = 952
"""Of the user `slurmrestd`, as images/Containerfile makes it."""

GRACE_SECONDS = 60
"""15 s until all nodes know that the pod is leaving, 30 s for requests that run (images/rest/proxy.py), and more."""


DASHBOARD_MEMORY = "2Gi"
"""The most that the page may have, unless its request is more. 100,000 jobs take 0.25 GiB (measured), and four pages
are made at the same time; users must not take the machine's memory by it."""


@dataclass(frozen=True, kw_only=True)
class RestArgs:
    """Inputs of `Rest`."""

    scope: Scope
    rest: RestConfig
    dashboard: bool = False
    """None: there is no page."""
    secrets: Secrets
    """A certificate of our own is derived from a seed in it."""
    configuration: Configuration
    """Slurm's files, which slurmrestd reads at its start."""


class Rest(pulumi.ComponentResource):
    """A Deployment of slurmrestd and nginx, with the dashboard where it is wanted, its Service and its certificate.

    No pod has a key of Slurm: a request is worth what the token is worth that it brings. Pods are replaced one by one,
    each after the next one answers.
    """

    service: k8s.core.v1.Service
    certificate: pulumi.Input[str]
    """Name of the Secret that has it."""
    url: pulumi.Output[str]
    authority: pulumi.Output[str] | None
    """The certificate of our own authority as PEM, None where the certificate comes from elsewhere."""

    def __init__(self, name: str, args: RestArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slurmstack:index:Rest", name, None, opts)
        self._child = pulumi.ResourceOptions(parent=self)
        self.authority = None
        self.certificate = self._create_certificate(name, args)
        self.service = self._create_service(name, args)
        self.deployment = self._create_deployment(name, args)
        if args.rest.size > 1:
            workloads.disruption_budget(name, args.scope, REST, self._child)
        self.url = self.service.metadata.apply(lambda made: f"https://{made.name}.{made.namespace}.svc:{REST_PORT}")
        self.register_outputs({"service": self.service.metadata})

    def _create_certificate(self, name: str, args: RestArgs) -> pulumi.Input[str]:
        """Name of the Secret that has it: the user's, or one of our own."""
        tls = args.rest.tls
        if tls.secret is not None:
            return tls.secret
        names = certificate_names(args.scope.name, args.scope.config.cloud.cluster_domain, tls.names)
        cluster = args.scope.name
        made = args.secrets.rest_seed.apply(lambda seed: server_certificate(seed, cluster, names))
        self.authority = pulumi.Output.unsecret(
            args.secrets.rest_seed.apply(lambda seed: authority_certificate(seed, cluster))
        )
        secret = k8s.core.v1.Secret(
            f"{name}-tls",
            metadata=args.scope.metadata(TLS_SECRET, REST),
            type="kubernetes.io/tls",
            string_data={
                "tls.crt": made.apply(lambda pair: pair.certificate),
                "tls.key": made.apply(lambda pair: pair.private_key),
                "ca.crt": made.apply(lambda pair: pair.authority),
            },
            opts=self._child,
        )
        return secret.metadata.name

    def _create_service(self, name: str, args: RestArgs) -> k8s.core.v1.Service:
        rest = args.rest
        metadata = args.scope.metadata(REST, REST)
        metadata.annotations = dict(rest.annotations) or None
        balancer, outside = rest.service_type == "LoadBalancer", rest.service_type != "ClusterIP"
        return k8s.core.v1.Service(
            f"{name}-service",
            metadata=metadata,
            spec=k8s.core.v1.ServiceSpecArgs(
                type=rest.service_type,
                selector=args.scope.selector(REST),
                load_balancer_source_ranges=(list(rest.source_ranges) or None) if balancer else None,
                # The network policy compares the client's own address, which another node would replace by its own.
                external_traffic_policy="Local" if outside and rest.source_ranges else None,
                ports=[workloads.service_port("https", REST_PORT, node_port=rest.node_port)],
            ),
            opts=self._child,
        )

    def _create_deployment(self, name: str, args: RestArgs) -> k8s.apps.v1.Deployment:
        scope = args.scope
        pod = k8s.core.v1.PodSpecArgs(
            termination_grace_period_seconds=GRACE_SECONDS,
            topology_spread_constraints=workloads.spread(scope.label_selector(REST)),
            security_context=k8s.core.v1.PodSecurityContextArgs(
                run_as_user=UID, run_as_group=UID, run_as_non_root=True, fs_group=UID
            ),
            # As sidecars they start before nginx and end after it: the last requests still find them.
            init_containers=[_slurmrestd(args), *([_dashboard(args)] if args.dashboard else [])],
            containers=[_proxy(args)],
            volumes=[
                args.configuration.files_as("config"),
                volumes.secret_volume("tls", self.certificate, mode=0o440),
                volumes.memory_dir("run"),
                volumes.memory_dir("nginx", size_limit="2Gi"),
            ],
        )
        template = pods.pod_template(scope, REST, scope.cloud.placement("system"), pod, knows_users=True)
        rolling = k8s.apps.v1.RollingUpdateDeploymentArgs(max_unavailable=0, max_surge=1)
        strategy = k8s.apps.v1.DeploymentStrategyArgs(type="RollingUpdate", rolling_update=rolling)
        return workloads.deployment(
            name, scope, REST, template, self._child, replicas=args.rest.size, strategy=strategy
        )


def _slurmrestd(args: RestArgs) -> k8s.core.v1.ContainerArgs:
    return k8s.core.v1.ContainerArgs(
        name="slurmrestd",
        image=args.scope.image("rest"),
        command=pods.program("slurmrestd"),
        restart_policy="Always",
        env=pods.env(THREADS="8", MAX_CONNECTIONS="124"),
        volume_mounts=[
            volumes.mount("config", "/config/slurm", read_only=True),
            volumes.mount("run", "/run/slurmstack"),
        ],
        resources=pods.resources(cpu="50m", memory="128Mi"),
    )


def _dashboard(args: RestArgs) -> k8s.core.v1.ContainerArgs:
    return k8s.core.v1.ContainerArgs(
        name="dashboard",
        image=args.scope.image("rest"),
        command=pods.program("dashboard"),
        restart_policy="Always",
        volume_mounts=[
            volumes.mount("config", "/config/slurm", read_only=True),
            volumes.mount("run", "/run/slurmstack"),
        ],
        resources=pods.resources(cpu="20m", memory="64Mi", memory_limit=DASHBOARD_MEMORY),
    )


def _proxy(args: RestArgs) -> k8s.core.v1.ContainerArgs:
    answers = pods.http_probe("/healthz", REST_PORT, scheme="HTTPS", period=10, timeout=5, failures=2)
    return k8s.core.v1.ContainerArgs(
        name="proxy",
        image=args.scope.image("rest"),
        command=pods.program("rest-proxy"),
        env=pods.env(DASHBOARD="yes") if args.dashboard else None,
        **pods.serving("https", REST_PORT, answers),
        volume_mounts=[
            volumes.mount("tls", "/secrets/tls", read_only=True),
            volumes.mount("run", "/run/slurmstack"),
            volumes.mount("nginx", "/run/nginx"),
        ],
        resources=pods.resources(cpu="20m", memory="32Mi"),
    )
