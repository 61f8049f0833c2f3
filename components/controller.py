"""The controller: slurmctld, its state, and the agent that applies configuration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from components.configuration import Configuration
from components.kit import pods, rbac, volumes, workloads
from components.kit.context import LOST_AFTER, STARTING, Scope, apart, children_of
from components.kit.volumes import DataVolume
from components.secrets import Secrets
from config.sections.services import Controller as ControllerConfig
from slurm.names import (
    ACTIVE,
    AGENT_PORT,
    CONFIG_MAP,
    CONTROLLER,
    CONTROLLER_HOST,
    SHARED_STATE,
    SLURMCTLD_PORT,
    STANDBY_PORT,
    STATE_DIR,
)

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
    after: Sequence[pulumi.Resource] = ()
    """What gets another release of Slurm first: slurmdbd, which must not be older than slurmctld."""


class Controller(pulumi.ComponentResource):
    """A StatefulSet of one pod with slurmctld and the configuration agent, its state claim and its Service.

    With a standby it is of two, and the Service leads to the one that has given itself the label of the active one.

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
        self.volume = volumes.data_volume(
            f"{name}-state", args.scope, STATE_CLAIM, CONTROLLER,
            size=controller.storage, storage_class=controller.storage_class,
            shared=controller.access_mode == "ReadWriteMany", opts=self._child,
        )  # fmt: skip
        self.claim = self.volume.claim
        self.account = self._create_account(name, args)
        self.service = self._create_service(name, args)
        self.stateful_set = self._create_stateful_set(name, args)
        if controller.standby:
            workloads.disruption_budget(name, args.scope, CONTROLLER, self._child)
        self.register_outputs({"service": self.service.metadata})

    def _create_account(self, name: str, args: ControllerArgs) -> k8s.core.v1.ServiceAccount:
        """The agent's rights: to follow the one ConfigMap, and see which pods and pools exist.

        Pods and pools are for node records whose pods are gone for good: it deletes records in Slurm alone.
        The end of slurmctld needs it too, and to know whether the namespace goes.
        """
        rules = [
            rbac.rule("configmaps", "get", "list", "watch", only=CONFIG_MAP),
            rbac.rule("pods", "get", "list"),
            rbac.rule("statefulsets", "get", "list", group="apps"),
            rbac.rule("namespaces", "get", only=args.scope.name),
        ]
        if args.controller.standby:  # for the label: what a pod runs cannot be changed but for its image
            rules += [rbac.rule("pods", "patch", only=f"{CONTROLLER}-{ordinal}") for ordinal in range(2)]
        return rbac.account(name, args.scope, CONTROLLER, rules, self._child)

    def _create_service(self, name: str, args: ControllerArgs) -> k8s.core.v1.Service:
        one = {"statefulset.kubernetes.io/pod-name": CONTROLLER_HOST}
        return workloads.service(
            f"{name}-service",
            args.scope,
            CONTROLLER,
            {"slurmctld": SLURMCTLD_PORT, "config-agent": AGENT_PORT},
            self._child,
            called=CONTROLLER_HOST,
            only={ACTIVE: "yes"} if args.controller.standby else one,
            # The agent answers before slurmctld does: it is what says why a configuration is not active yet.
            unready=True,
        )

    def _create_stateful_set(self, name: str, args: ControllerArgs) -> k8s.apps.v1.StatefulSet:
        scope, standby = args.scope, args.controller.standby
        pod = k8s.core.v1.PodSpecArgs(
            service_account_name=self.account.metadata.name,
            termination_grace_period_seconds=LAST_JOB_SECONDS,
            dns_config=scope.daemon_dns,
            affinity=workloads.rather_apart(scope.label_selector(CONTROLLER)) if standby else None,
            # Commands in a pod ask its own slurmctld, wherever the Service leads.
            host_aliases=[k8s.core.v1.HostAliasArgs(ip="127.0.0.1", hostnames=[CONTROLLER_HOST])] if standby else None,
            init_containers=[pods.munge_sidecar(scope.image("controller"))],
            containers=[_slurmctld(args, self.volume), _config_agent(args, self.volume)],
            volumes=[
                *pods.munge_volumes(args.secrets.munge.metadata.name),
                pods.jwt_volume(args.secrets.jwt.metadata.name),
                volumes.claim_volume("state", self.claim.metadata.name),
                volumes.empty_dir("run", size_limit=pods.SMALL),
                *([volumes.empty_dir("spool", size_limit=pods.SMALL)] if standby else []),
                pods.token_volume(),
                args.configuration.files_as("config"),
            ],
        )
        placement = scope.cloud.placement("controller")
        return workloads.stateful_set(
            name,
            scope.metadata_of_slurm(CONTROLLER, CONTROLLER),
            scope.label_selector(CONTROLLER),
            pods.pod_template(scope, CONTROLLER, placement, pod, stays=True, knows_users=True, leaves_after=LOST_AFTER),
            pulumi.ResourceOptions(
                parent=self,
                depends_on=[*args.after, *([scope.tried] if scope.tried else [])],
                custom_timeouts=pulumi.CustomTimeouts(create=STARTING, update=STARTING, delete=f"{LAST_JOB_SECONDS}s"),
            ),
            ordered=2 if standby else 1,
        )


def _mounts(args: ControllerArgs) -> list[k8s.core.v1.VolumeMountArgs]:
    state = [volumes.mount("state", STATE_DIR)]
    if args.controller.standby:
        state = [volumes.mount("state", SHARED_STATE), volumes.mount("spool", STATE_DIR.rpartition("/")[0])]
    return [pods.munge_mount(), *state, volumes.mount("run", "/run/slurmstack")]


def _slurmctld(args: ControllerArgs, state: DataVolume) -> k8s.core.v1.ContainerArgs:
    standby, ready, env = args.controller.standby, pods.tcp_probe(SLURMCTLD_PORT, period=5), []
    if standby:
        ready = pods.http_probe("/ready", STANDBY_PORT, period=5)
        env = [pods.field_env("POD_UID", "metadata.uid"), *pods.env(**state.env)]
    leave = k8s.core.v1.ExecActionArgs(command=[f"{pods.LIBEXEC}/leave"])
    return k8s.core.v1.ContainerArgs(
        name="slurmctld",
        image=args.scope.image("controller"),
        command=pods.program("standby" if standby else "slurmctld"),
        # For Slurm's own commands in this container: `kubectl exec service/controller-0 -c slurmctld -- sinfo`.
        env=[*pods.env(SLURM_CONF=ACTIVE_CONF), *env],
        lifecycle=k8s.core.v1.LifecycleArgs(pre_stop=k8s.core.v1.LifecycleHandlerArgs(exec_=leave)),
        # For the agent, which says why slurmctld does not start.
        termination_message_policy="FallbackToLogsOnError",
        **pods.serving("slurmctld", SLURMCTLD_PORT, ready),
        # The token is for the preStop hook, and for the standby's label.
        volume_mounts=[*_mounts(args), pods.jwt_mount(), pods.token_mount()],
        resources=pods.resources(cpu=args.controller.cpu, memory=args.controller.memory),
    )


def _config_agent(args: ControllerArgs, state: DataVolume) -> k8s.core.v1.ContainerArgs:
    return k8s.core.v1.ContainerArgs(
        name="config-agent",
        image=args.scope.image("controller"),
        command=pods.program("config-agent"),
        env=[
            pods.field_env("NAMESPACE", "metadata.namespace"),
            *pods.env(CONFIG_MAP=CONFIG_MAP, **state.env),
        ],
        ports=[k8s.core.v1.ContainerPortArgs(name="config-agent", container_port=AGENT_PORT)],
        volume_mounts=[*_mounts(args), volumes.mount("config", "/config/slurm", read_only=True), pods.token_mount()],
        resources=pods.resources(cpu="20m", memory="64Mi"),
    )
