"""The controller: slurmctld, its state, and the agent that applies configuration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from components.configuration import Configuration
from components.kit import pods, rbac, volumes, workloads
from components.kit.context import STARTING, Scope, apart, children_of
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
    STATE_DIR,
    SUPERVISOR_PORT,
)

LAST_JOB_SECONDS = 366 * 24 * 3600
"""How long the pod may take to end: where the whole cluster goes, slurmctld stays until the workers' last job has ended
(images/controller/leave.py, which also ends a slurmctld that hangs). No pool may wait longer
(config/sections/workers.py)."""

STATE_CLAIM = "controller-state"

ACTIVE_CONF = f"{STATE_DIR}/slurmstack/current/slurm.conf"
"""Where the configuration agent publishes what slurmctld runs with."""

_SPOOL = STATE_DIR.rpartition("/")[0]


@dataclass(frozen=True, kw_only=True)
class ControllerArgs:
    """Inputs of `Controller`."""

    scope: Scope
    controller: ControllerConfig
    secrets: Secrets
    configuration: Configuration
    after: Sequence[pulumi.Resource] = ()
    """What gets another release of Slurm first: slurmdbd, which must not be older than slurmctld."""

    @property
    def of_two(self) -> bool:
        """Whether there are two controllers."""
        return self.controller.replicas > 1


class Controller(pulumi.ComponentResource):
    """A StatefulSet of one pod with slurmctld and the configuration agent, its state claim and its Service.

    Or of two, of which one is active and the other stands by: the Service then leads to the pod that has given itself
    the label of the active one, and what the cluster knows of its controller is the same as before.

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
            shared=controller.replicas > 1, keeps_mode=True, opts=self._child,
        )  # fmt: skip
        self.claim = self.volume.claim
        self.account = self._create_account(name, args)
        self.service = self._create_service(name, args)
        self.stateful_set = self._create_stateful_set(name, args)
        if args.of_two:
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
            *(_rules_of_two() if args.of_two else []),
        ]
        return rbac.account(name, args.scope, CONTROLLER, rules, self._child)

    def _create_service(self, name: str, args: ControllerArgs) -> k8s.core.v1.Service:
        return workloads.service(
            f"{name}-service",
            args.scope,
            CONTROLLER,
            {"slurmctld": SLURMCTLD_PORT, "config-agent": AGENT_PORT},
            self._child,
            called=CONTROLLER_HOST,
            only={ACTIVE: "yes"} if args.of_two else {"statefulset.kubernetes.io/pod-name": CONTROLLER_HOST},
            # The agent answers before slurmctld does: it is what says why a configuration is not active yet.
            unready=True,
        )

    def _create_stateful_set(self, name: str, args: ControllerArgs) -> k8s.apps.v1.StatefulSet:
        scope = args.scope
        pod = k8s.core.v1.PodSpecArgs(
            service_account_name=self.account.metadata.name,
            termination_grace_period_seconds=LAST_JOB_SECONDS,
            dns_config=scope.node_dns,
            affinity=workloads.apart_on_machines(scope.label_selector(CONTROLLER)) if args.of_two else None,
            init_containers=[pods.munge_sidecar(scope.image("controller"))],
            containers=[_slurmctld(args, self.volume), _config_agent(args, self.volume)],
            volumes=[
                *pods.munge_volumes(args.secrets.munge.metadata.name),
                pods.jwt_volume(args.secrets.jwt.metadata.name),
                volumes.claim_volume("state", self.claim.metadata.name),
                volumes.empty_dir("run", size_limit=pods.SMALL),
                *([volumes.empty_dir("spool", size_limit=pods.SMALL)] if args.of_two else []),
                pods.token_volume(),
                args.configuration.files_as("config"),
            ],
        )
        placement = scope.cloud.placement("controller")
        return workloads.stateful_set(
            name,
            scope.metadata_of_slurm(CONTROLLER, CONTROLLER),
            scope.label_selector(CONTROLLER),
            pods.pod_template(scope, CONTROLLER, placement, pod, stays=True, knows_users=True),
            pulumi.ResourceOptions(
                parent=self,
                depends_on=[*args.after, *([scope.tried] if scope.tried else [])],
                custom_timeouts=pulumi.CustomTimeouts(create=STARTING, update=STARTING, delete=f"{LAST_JOB_SECONDS}s"),
            ),
            # The second one is made once the first is ready: a set that has been of one pod stays of the same kind.
            ordered=args.controller.replicas,
        )


def _rules_of_two() -> list[k8s.rbac.v1.PolicyRuleArgs]:
    """To hold the Lease, which nobody can be allowed to create by its name, and to give itself the label or take it.

    What a pod runs cannot be changed but for its image, and that of no other pod than these two.
    """
    leases = "coordination.k8s.io"
    return [
        rbac.rule("leases", "create", group=leases),
        rbac.rule("leases", "get", "patch", group=leases, only=CONTROLLER),
        *(rbac.rule("pods", "patch", only=f"{CONTROLLER}-{ordinal}") for ordinal in range(2)),
    ]


def _mounts(args: ControllerArgs) -> list[k8s.core.v1.VolumeMountArgs]:
    state = (
        [volumes.mount("state", SHARED_STATE), volumes.mount("spool", _SPOOL)]
        if args.of_two
        else [volumes.mount("state", STATE_DIR)]
    )
    return [pods.munge_mount(), *state, volumes.mount("run", "/run/slurmstack")]


def _slurmctld(args: ControllerArgs, state: DataVolume) -> k8s.core.v1.ContainerArgs:
    leave = k8s.core.v1.ExecActionArgs(command=[f"{pods.LIBEXEC}/leave"])
    ready = (
        pods.http_probe("/ready", SUPERVISOR_PORT, period=5)
        if args.of_two
        else pods.tcp_probe(SLURMCTLD_PORT, period=5)
    )
    return k8s.core.v1.ContainerArgs(
        name="slurmctld",
        image=args.scope.image("controller"),
        command=pods.program("supervisor" if args.of_two else "slurmctld"),
        # For Slurm's own commands in this container: `kubectl exec service/controller-0 -c slurmctld -- sinfo`.
        env=[*pods.env(SLURM_CONF=ACTIVE_CONF), *_env_of_two(args, state)],
        lifecycle=k8s.core.v1.LifecycleArgs(pre_stop=k8s.core.v1.LifecycleHandlerArgs(exec_=leave)),
        liveness_probe=_hangs() if args.of_two else None,
        # For the agent, which says why slurmctld does not start.
        termination_message_policy="FallbackToLogsOnError",
        **pods.serving("slurmctld", SLURMCTLD_PORT, ready),
        # The token is for the preStop hook, and for the supervisor.
        volume_mounts=[*_mounts(args), pods.jwt_mount(), pods.token_mount()],
        resources=pods.resources(cpu=args.controller.cpu, memory=args.controller.memory),
    )


def _hangs() -> k8s.core.v1.ProbeArgs:
    """A controller that answers nothing for half a minute is started again: the other one has long been active."""
    probe = pods.http_probe("/live", SUPERVISOR_PORT, period=10, timeout=5)
    probe.termination_grace_period_seconds = 5  # the pod's own is for the end of the cluster, and a year
    return probe


def _env_of_two(args: ControllerArgs, state: DataVolume) -> list[k8s.core.v1.EnvVarArgs]:
    """For the programs of two controllers: which pod this is, and the name by which all others know the active one.

    The supervisor looks at the volume before anybody else does.
    """
    if not args.of_two:
        return []
    return [pods.field_env("POD_UID", "metadata.uid"), *pods.env(SLURMSTACK_HOST=CONTROLLER_HOST, **state.env)]


def _config_agent(args: ControllerArgs, state: DataVolume) -> k8s.core.v1.ContainerArgs:
    return k8s.core.v1.ContainerArgs(
        name="config-agent",
        image=args.scope.image("controller"),
        command=pods.program("config-agent"),
        env=[
            pods.field_env("NAMESPACE", "metadata.namespace"),
            *pods.env(CONFIG_MAP=CONFIG_MAP, **state.env),
            *(pods.env(SLURMSTACK_HOST=CONTROLLER_HOST) if args.of_two else []),
        ],
        ports=[k8s.core.v1.ContainerPortArgs(name="config-agent", container_port=AGENT_PORT)],
        volume_mounts=[*_mounts(args), volumes.mount("config", "/config/slurm", read_only=True), pods.token_mount()],
        resources=pods.resources(cpu="20m", memory="64Mi"),
    )
