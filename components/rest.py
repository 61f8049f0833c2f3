"""The REST API: slurmrestd behind TLS."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s
from pulumi_kubernetes.apiextensions import CustomResource

from components.clouds.base import Placement
from components.pods import (
    STARTING,
    Scope,
    children_of,
    empty_dir,
    env,
    mount,
    pod_template,
    program,
    resources,
    starting,
    waits,
)
from components.sssd import with_sssd
from config.rest import Rest as RestConfig
from slurm.certificates import authority_certificate, is_address, server_certificate
from slurm.names import REST, REST_PORT
from slurm.rest import certificate_names

TLS_SECRET = "rest-tls"  # noqa: S105  the name of a Secret
"""Secret with the certificate, unless the stack file names one."""

UID = 952
"""Of the user `slurmrestd`, as images/Containerfile makes it."""

GRACE_SECONDS = 45
"""5 s until all nodes know that the pod is leaving, 30 s for requests that run (images/rest/proxy.py), and more."""


@dataclass(frozen=True, kw_only=True)
class RestArgs:
    """Inputs of `Rest`."""

    scope: Scope
    rest: RestConfig
    image: str
    config_map: pulumi.Input[str]
    """Slurm's files, which slurmrestd reads at its start."""
    seed: pulumi.Output[str]
    """What a certificate of our own is derived from."""
    placement: Placement


class Rest(pulumi.ComponentResource):
    """A Deployment of slurmrestd and nginx, its Service and its certificate.

    No pod has a key of Slurm: a request is worth what the token is worth that it brings. Pods are replaced one by one,
    each after the next one answers.
    """

    service: k8s.core.v1.Service
    url: pulumi.Output[str]
    authority: pulumi.Output[str] | None
    """The certificate of our own authority as PEM, None where the certificate comes from elsewhere."""

    def __init__(self, name: str, args: RestArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slurmstack:index:Rest", name, None, opts)
        self._child = children_of(self, opts)
        self.authority = None
        secret = self._create_certificate(name, args)
        self.service = self._create_service(name, args)
        self.deployment = self._create_deployment(name, args, secret)
        if args.rest.size > 1:
            self._create_disruption_budget(name, args.scope)
        self.url = self.service.metadata.apply(lambda made: f"https://{made.name}.{made.namespace}.svc:{REST_PORT}")
        self.register_outputs({"service": self.service.metadata})

    def _create_certificate(self, name: str, args: RestArgs) -> pulumi.Input[str]:
        """Name of the Secret that has it: the user's, cert-manager's, or one of our own."""
        tls = args.rest.tls
        if tls.secret is not None:
            return tls.secret
        names = certificate_names(args.scope.name, args.scope.cluster_domain, tls.names)
        if tls.issuer is not None:
            self._create_certificate_request(name, args, names)
            return TLS_SECRET
        cluster = args.scope.name
        made = args.seed.apply(lambda seed: server_certificate(seed, cluster, names))
        self.authority = pulumi.Output.unsecret(args.seed.apply(lambda seed: authority_certificate(seed, cluster)))
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

    def _create_certificate_request(self, name: str, args: RestArgs, names: Sequence[str]) -> None:
        issuer = args.rest.tls.issuer
        assert issuer is not None
        addresses = [name for name in names if is_address(name)]
        CustomResource(
            f"{name}-certificate",
            api_version="cert-manager.io/v1",
            kind="Certificate",
            metadata=args.scope.metadata(REST, REST),
            spec={
                "secretName": TLS_SECRET,
                "dnsNames": [name for name in names if name not in addresses],
                **({"ipAddresses": addresses} if addresses else {}),
                "privateKey": {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always"},
                "usages": ["server auth"],
                "issuerRef": {"name": issuer.name, "kind": issuer.kind, "group": "cert-manager.io"},
            },
            opts=self._child,
        )

    def _create_service(self, name: str, args: RestArgs) -> k8s.core.v1.Service:
        rest = args.rest
        outside = rest.service_type != "ClusterIP"
        metadata = args.scope.metadata(REST, REST)
        metadata.annotations = dict(rest.annotations) or None
        balancer = rest.service_type == "LoadBalancer"
        return k8s.core.v1.Service(
            f"{name}-service",
            metadata=metadata,
            spec=k8s.core.v1.ServiceSpecArgs(
                type=rest.service_type,
                selector=args.scope.selector(REST),
                load_balancer_source_ranges=(list(rest.source_ranges) or None) if balancer else None,
                # The network policy compares the client's own address, which another node would replace by its own.
                external_traffic_policy="Local" if outside and rest.source_ranges else None,
                ports=[
                    k8s.core.v1.ServicePortArgs(
                        name="https", port=REST_PORT, target_port=REST_PORT, node_port=rest.node_port
                    )
                ],
            ),
            opts=self._child,
        )

    def _create_deployment(self, name: str, args: RestArgs, secret: pulumi.Input[str]) -> k8s.apps.v1.Deployment:
        scope = args.scope
        config = k8s.core.v1.ConfigMapVolumeSourceArgs(name=args.config_map)
        tls = k8s.core.v1.SecretVolumeSourceArgs(secret_name=secret, default_mode=0o440)
        pod = k8s.core.v1.PodSpecArgs(
            enable_service_links=False,
            image_pull_secrets=scope.pull_secrets,
            termination_grace_period_seconds=GRACE_SECONDS,
            topology_spread_constraints=[_spread(scope)],
            security_context=k8s.core.v1.PodSecurityContextArgs(
                run_as_user=UID,
                run_as_group=UID,
                run_as_non_root=True,
                fs_group=UID,
            ),
            # As a sidecar it starts before nginx and ends after it: the last requests still find it.
            init_containers=[_slurmrestd(args)],
            containers=[_proxy(args)],
            volumes=[
                k8s.core.v1.VolumeArgs(name="config", config_map=config),
                k8s.core.v1.VolumeArgs(name="tls", secret=tls),
                empty_dir("run", medium="Memory", size_limit="64Mi"),
                empty_dir("nginx", medium="Memory", size_limit="2Gi"),
            ],
        )
        return k8s.apps.v1.Deployment(
            f"{name}-pods",
            metadata=scope.metadata(REST, REST),
            spec=k8s.apps.v1.DeploymentSpecArgs(
                replicas=args.rest.size,
                strategy=k8s.apps.v1.DeploymentStrategyArgs(
                    type="RollingUpdate",
                    rolling_update=k8s.apps.v1.RollingUpdateDeploymentArgs(max_unavailable=0, max_surge=1),
                ),
                selector=k8s.meta.v1.LabelSelectorArgs(match_labels=scope.selector(REST)),
                template=pod_template(scope, scope.labels(REST), args.placement, with_sssd(scope, pod, args.image)),
            ),
            opts=self._child.merge(waits(STARTING)),
        )

    def _create_disruption_budget(self, name: str, scope: Scope) -> None:
        """With a single pod it would only keep a node from being drained."""
        k8s.policy.v1.PodDisruptionBudget(
            f"{name}-budget",
            metadata=scope.metadata(REST, REST),
            spec=k8s.policy.v1.PodDisruptionBudgetSpecArgs(
                max_unavailable=1, selector=k8s.meta.v1.LabelSelectorArgs(match_labels=scope.selector(REST))
            ),
            opts=self._child,
        )


def _spread(scope: Scope) -> k8s.core.v1.TopologySpreadConstraintArgs:
    return k8s.core.v1.TopologySpreadConstraintArgs(
        max_skew=1,
        topology_key="kubernetes.io/hostname",
        when_unsatisfiable="ScheduleAnyway",
        label_selector=k8s.meta.v1.LabelSelectorArgs(match_labels=scope.selector(REST)),
    )


def _slurmrestd(args: RestArgs) -> k8s.core.v1.ContainerArgs:
    return k8s.core.v1.ContainerArgs(
        name="slurmrestd",
        image=args.image,
        command=program("slurmrestd"),
        restart_policy="Always",
        env=env(THREADS=str(args.rest.threads), MAX_CONNECTIONS=str(args.rest.max_connections)),
        volume_mounts=[mount("config", "/config/slurm", read_only=True), mount("run", "/run/slurmstack")],
        resources=resources(cpu=args.rest.cpu, memory=args.rest.memory),
    )


def _proxy(args: RestArgs) -> k8s.core.v1.ContainerArgs:
    healthz = k8s.core.v1.HTTPGetActionArgs(scheme="HTTPS", port=REST_PORT, path="/healthz")
    probe = k8s.core.v1.ProbeArgs(http_get=healthz, period_seconds=10, timeout_seconds=5, failure_threshold=2)
    return k8s.core.v1.ContainerArgs(
        name="proxy",
        image=args.image,
        command=program("rest-proxy"),
        ports=[k8s.core.v1.ContainerPortArgs(name="https", container_port=REST_PORT)],
        readiness_probe=probe,
        startup_probe=starting(probe),
        volume_mounts=[
            mount("tls", "/secrets/tls", read_only=True),
            mount("run", "/run/slurmstack"),
            mount("nginx", "/run/nginx"),
        ],
        resources=resources(cpu="20m", memory="32Mi"),
    )
