"""Login nodes: sshd that leads into the jail."""

from __future__ import annotations

from collections.abc import Sequence

import pulumi
import pulumi_kubernetes as k8s

from components.jail import Mount, container_mounts, mount_volumes, mounts_env
from components.kit import pods, volumes, workloads
from components.kit.context import FILLING, Scope, waits
from components.kit.volumes import JailVolume
from components.secrets import Secrets
from components.worker_ssh import PUBLIC_KEY_MOUNT, public_key_volume
from slurm.names import JAIL_DIR, LOGIN, SSH_PORT
from slurm.users import login_limits

GRACE_SECONDS = 30
"""For sshd itself to end."""


class Login(pulumi.ComponentResource):
    """Several equal pods behind one Service; each connection goes to one of them at random.

    All have the same host key, so that a client sees one machine. `sackd` keeps Slurm's configuration current for them.
    """

    service: k8s.core.v1.Service

    def __init__(
        self,
        name: str,
        scope: Scope,
        secrets: Secrets,
        jail: JailVolume,
        mounts: Sequence[Mount],
        *,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("slurmstack:index:Login", name, None, opts)
        self._child = pulumi.ResourceOptions(parent=self)
        self._scope, self._secrets, self._jail, self._mounts = scope, secrets, jail, mounts
        self.service = self._create_service(name)
        self.stateful_set = self._create_stateful_set(name)
        if scope.config.login.size > 1:
            workloads.disruption_budget(name, scope, LOGIN, self._child)
        self.register_outputs({"service": self.service.metadata})

    def _create_service(self, name: str) -> k8s.core.v1.Service:
        login = self._scope.config.login
        metadata = self._scope.metadata(LOGIN, LOGIN)
        # A login Service without login nodes is allowed, and Pulumi would wait for its endpoints in vain.
        skip = {"pulumi.com/skipAwait": "true"} if login.size == 0 else {}
        # Those in the stack file win over those that the cloud asks for.
        metadata.annotations = {**self._scope.cloud.login_annotations, **login.annotations, **skip} or None
        return k8s.core.v1.Service(
            f"{name}-service",
            metadata=metadata,
            spec=k8s.core.v1.ServiceSpecArgs(
                type=login.service_type,
                selector=self._scope.selector(LOGIN),
                load_balancer_source_ranges=list(login.source_ranges) or None,
                ports=[workloads.service_port("ssh", SSH_PORT, node_port=login.node_port)],
            ),
            opts=self._child,
        )

    def _create_stateful_set(self, name: str) -> k8s.apps.v1.StatefulSet:
        scope = self._scope
        pod = k8s.core.v1.PodSpecArgs(
            termination_grace_period_seconds=GRACE_SECONDS,
            dns_config=scope.node_dns,
            topology_spread_constraints=workloads.spread(scope.label_selector(LOGIN)),
            init_containers=[pods.munge_sidecar(scope.image("login"))],
            containers=[self._sshd(), self._sackd()],
            volumes=[
                *pods.munge_volumes(self._secrets.munge.metadata.name),
                *self._jail.volumes(),
                *mount_volumes(self._mounts),
                volumes.secret_volume("host-keys", self._secrets.ssh_host_keys.metadata.name),
                volumes.empty_dir("run", size_limit=pods.SMALL),
                *([public_key_volume(self._secrets)] if scope.config.worker_ssh else []),
                volumes.empty_dir("tmp", size_limit=self._scope.config.login.tmp),
            ],
        )
        template = pods.pod_template(
            scope, LOGIN, scope.cloud.placement("login"), pod,
            labels={pods.SLURM_NODE_LABEL: "true"}, stays=True, knows_users=True,
        )  # fmt: skip
        return workloads.stateful_set(
            name,
            scope.metadata_of_slurm(LOGIN, LOGIN),
            scope.label_selector(LOGIN),
            template,
            scope.after_trial(self._child).merge(waits(FILLING)),
            replicas=self._scope.config.login.size,
        )

    def _sshd(self) -> k8s.core.v1.ContainerArgs:
        limits = login_limits(self._scope.config.login.user_limits)
        return k8s.core.v1.ContainerArgs(
            name="sshd",
            image=self._scope.image("login"),
            command=[f"{pods.LIBEXEC}/sshd"],
            env=pods.env(
                JAIL=JAIL_DIR,
                **({"USER_LIMITS": limits} if limits else {}),
                **self._jail.env,
                **mounts_env(self._mounts, in_jail=True, shared=self._jail.shared()),
            ),
            **pods.serving("ssh", SSH_PORT, pods.tcp_probe(SSH_PORT, period=10)),
            security_context=pods.into_jail("sshd"),
            volume_mounts=[
                pods.munge_mount(),
                *self._jail.mounts(),
                *container_mounts(self._mounts, in_jail=True),
                volumes.mount("host-keys", "/secrets/ssh", read_only=True),
                volumes.mount("run", "/run/slurm"),
                *([PUBLIC_KEY_MOUNT] if self._scope.config.worker_ssh else []),
                volumes.mount("tmp", "/tmp"),
            ],
            resources=pods.resources(
                cpu=self._scope.config.login.cpu,
                memory=self._scope.config.login.memory,
                memory_limit=self._scope.config.login.most_memory,
                disk=pods.disk_for(self._scope.config.login.tmp),
            ),
        )

    def _sackd(self) -> k8s.core.v1.ContainerArgs:
        return k8s.core.v1.ContainerArgs(
            name="sackd",
            image=self._scope.image("login"),
            command=pods.program("sackd"),
            env=pods.env(CONTROLLER=pods.CONTROLLER_ADDRESS),
            volume_mounts=[pods.munge_mount(), volumes.mount("run", "/run/slurm")],
            resources=pods.resources(cpu="5m", memory="16Mi", memory_limit="128Mi"),
        )
