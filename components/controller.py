"""The controller: slurmctld, its state, and the agent that applies configuration."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from components.configuration import Configuration
from components.kit.confinement import token_mount, token_volume
from components.kit.context import STARTING, Scope, apart, children_of
from components.kit.rbac import allow, rule
from components.kit.volumes import DataVolume, data_volume
from components.kit.workload import (
    LIBEXEC,
    SMALL,
    claim_volume,
    empty_dir,
    env,
    jwt_mount,
    jwt_volume,
    mount,
    munge_mount,
    munge_sidecar,
    munge_volumes,
    pod_template,
    program,
    resources,
    service_port,
    starting,
    stateful_set,
    tcp_probe,
)
from components.secrets import Secrets
from components.sssd import with_sssd
from config.sections.services import Controller as ControllerConfig
from slurm.names import AGENT_PORT, CONFIG_MAP, CONTROLLER, CONTROLLER_HOST, SLURMCTLD_PORT, STATE_DIR

LAST_JOB_SECONDS = 366 * 24 * 3600
"""How long the pod may take to end: where the whole cluster goes, slurmctld stays until the workers' last job has ended
(images/controller/leave.py, which also ends a slurmctld that hangs). No pool may wait longer
(config/sections/workers.py)."""

STATE_CLAIM = "controller-state"

ACTIVE_CONF = f"{STATE_DIR}/slurmstack/current/slurm.conf"
"""Where the configuration agent publishes what slurmctld runs with."""


@dataclass(frozen=True, kw_only=True)
class ControllerArgs:
    """Inputs of `Controller`."""

    scope: Scope
    controller: ControllerConfig
    secrets: Secrets
    configuration: Configuration
    policy_figures: bool
    """Whether the agent tells how the policy's jobs have ended."""


class Controller(pulumi.ComponentResource):
    """A StatefulSet of one pod with slurmctld and the configuration agent, its state claim and its Service.

    The Service has an address of its own that survives the pod: with a headless one, clients kept the dead pod's
    address and `sbatch` took 20 s after a restart instead of 3 s (measured).

    When the cluster goes, the StatefulSet is deleted before the namespace is: all that slurmctld and the leaving
    workers need is in there.
    """

    service: k8s.core.v1.Service

    def __init__(self, name: str, args: ControllerArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slurmstack:index:Controller", name, None, apart(opts))
        self._child = children_of(self, opts)
        controller = args.controller
        self._volume = data_volume(
            f"{name}-state", args.scope, STATE_CLAIM, CONTROLLER,
            size=controller.storage, storage_class=controller.storage_class, shared=False, opts=self._child,
        )  # fmt: skip
        self.claim = self._volume.claim
        self.account = self._create_account(name, args)
        self.service = self._create_service(name, args.scope)
        self.stateful_set = self._create_stateful_set(name, args)
        self.register_outputs({"service": self.service.metadata})

    def _create_account(self, name: str, args: ControllerArgs) -> k8s.core.v1.ServiceAccount:
        """The agent's rights: to follow the one ConfigMap, and see which pods and pools exist; and jobs, for figures.

        Pods and pools are for node records whose pods are gone for good: it deletes records in Slurm alone.
        The end of slurmctld needs it too, and to know whether the namespace goes.
        """
        scope = args.scope
        account = k8s.core.v1.ServiceAccount(
            f"{name}-account", metadata=scope.metadata(CONTROLLER, CONTROLLER), opts=self._child
        )
        rules = [
            rule("configmaps", "get", "list", "watch", only=CONFIG_MAP),
            rule("pods", "get", "list"),
            rule("statefulsets", "get", "list", group="apps"),
            rule("namespaces", "get", only=scope.name),
            *([rule("jobs", "list", group="batch")] if args.policy_figures else []),
        ]
        allow(name, scope.metadata(CONTROLLER, CONTROLLER), account, rules, self._child)
        return account

    def _create_service(self, name: str, scope: Scope) -> k8s.core.v1.Service:
        return k8s.core.v1.Service(
            f"{name}-service",
            metadata=scope.metadata(CONTROLLER_HOST, CONTROLLER),
            spec=k8s.core.v1.ServiceSpecArgs(
                type="ClusterIP",
                selector={**scope.selector(CONTROLLER), "statefulset.kubernetes.io/pod-name": CONTROLLER_HOST},
                # The agent answers before slurmctld does: it is what says why a configuration is not active yet.
                publish_not_ready_addresses=True,
                ports=[service_port("slurmctld", SLURMCTLD_PORT), service_port("config-agent", AGENT_PORT)],
            ),
            opts=self._child,
        )

    def _create_stateful_set(self, name: str, args: ControllerArgs) -> k8s.apps.v1.StatefulSet:
        scope = args.scope
        image = scope.image("controller")
        pod = k8s.core.v1.PodSpecArgs(
            service_account_name=self.account.metadata.name,
            termination_grace_period_seconds=LAST_JOB_SECONDS,
            dns_config=scope.node_dns,
            init_containers=[munge_sidecar(image)],
            containers=[_slurmctld(args), _config_agent(args, self._volume)],
            volumes=[
                *munge_volumes(args.secrets.munge.metadata.name),
                jwt_volume(args.secrets.jwt.metadata.name),
                claim_volume("state", self.claim.metadata.name),
                empty_dir("run", size_limit=SMALL),
                token_volume(),
                args.configuration.files_as("config"),
            ],
        )
        placement = scope.cloud.placement("controller")
        return stateful_set(
            name,
            scope.metadata(CONTROLLER, CONTROLLER),
            scope.label_selector(CONTROLLER),
            pod_template(scope, scope.labels(CONTROLLER), placement, with_sssd(scope, pod, image), stays=True),
            pulumi.ResourceOptions(
                parent=self,
                custom_timeouts=pulumi.CustomTimeouts(create=STARTING, update=STARTING, delete=f"{LAST_JOB_SECONDS}s"),
            ),
        )


def _mounts() -> list[k8s.core.v1.VolumeMountArgs]:
    return [munge_mount(), mount("state", STATE_DIR), mount("run", "/run/slurmstack")]


def _slurmctld(args: ControllerArgs) -> k8s.core.v1.ContainerArgs:
    leave = k8s.core.v1.ExecActionArgs(command=[f"{LIBEXEC}/leave"])
    return k8s.core.v1.ContainerArgs(
        name="slurmctld",
        image=args.scope.image("controller"),
        command=program("slurmctld"),
        ports=[k8s.core.v1.ContainerPortArgs(name="slurmctld", container_port=SLURMCTLD_PORT)],
        # For Slurm's own commands in this container: `kubectl exec controller-0 -c slurmctld -- sinfo`.
        env=env(SLURM_CONF=ACTIVE_CONF),
        lifecycle=k8s.core.v1.LifecycleArgs(pre_stop=k8s.core.v1.LifecycleHandlerArgs(exec_=leave)),
        readiness_probe=tcp_probe(SLURMCTLD_PORT, period=5),
        startup_probe=starting(tcp_probe(SLURMCTLD_PORT, period=5)),
        # The token is for the preStop hook.
        volume_mounts=[*_mounts(), jwt_mount(), token_mount()],
        resources=resources(cpu=args.controller.cpu, memory=args.controller.memory),
    )


def _config_agent(args: ControllerArgs, state: DataVolume) -> k8s.core.v1.ContainerArgs:
    return k8s.core.v1.ContainerArgs(
        name="config-agent",
        image=args.scope.image("controller"),
        command=program("config-agent"),
        env=[
            k8s.core.v1.EnvVarArgs(
                name="NAMESPACE",
                value_from=k8s.core.v1.EnvVarSourceArgs(
                    field_ref=k8s.core.v1.ObjectFieldSelectorArgs(field_path="metadata.namespace")
                ),
            ),
            *env(CONFIG_MAP=CONFIG_MAP, **state.env),
        ],
        ports=[k8s.core.v1.ContainerPortArgs(name="config-agent", container_port=AGENT_PORT)],
        volume_mounts=[*_mounts(), mount("config", "/config/slurm", read_only=True), token_mount()],
        resources=resources(cpu="20m", memory="64Mi"),
    )
