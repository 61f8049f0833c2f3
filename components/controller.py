"""The controller: slurmctld, its state, and the agent that applies configuration."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from components.clouds.base import CloudResources
from components.confinement import token_mount, token_volume
from components.pods import (
    LIBEXEC,
    SMALL,
    STARTING,
    Scope,
    apart,
    children_of,
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
    starting,
    tcp_probe,
)
from components.sssd import with_sssd
from components.volumes import DataVolume, DataVolumeArgs, data_volume
from slurm.names import AGENT_PORT, CONFIG_MAP, CONTROLLER, CONTROLLER_HOST, NODES_SERVICE, SLURMCTLD_PORT, STATE_DIR

LAST_JOB_SECONDS = 366 * 24 * 3600
"""How long the pod may take to end: where the whole cluster goes, slurmctld stays until the workers' last job has ended
(images/controller/leave.py, which also ends a slurmctld that hangs). No pool may wait longer (config/workers.py)."""

STATE_CLAIM = "controller-state"

ACTIVE_CONF = f"{STATE_DIR}/slurmstack/current/slurm.conf"
"""Where the configuration agent publishes what slurmctld runs with."""


@dataclass(frozen=True, kw_only=True)
class ControllerArgs:
    """Inputs of `Controller`."""

    scope: Scope
    cloud: CloudResources
    image: str
    cpu: str
    memory: str
    storage: str
    """Capacity of the state volume as a Kubernetes quantity."""
    storage_class: str | None
    munge_secret: pulumi.Input[str]
    jwt_secret: pulumi.Input[str]
    config_map: pulumi.Input[str]
    protect: bool
    outside_namespace: pulumi.ResourceOptions
    """For the static volume, which does not go away with the namespace."""


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
        self._volume = self._create_volume(name, args)
        self.claim = self._volume.claim
        self.account = self._create_account(name, args.scope)
        self.service = self._create_service(name, args.scope)
        self.stateful_set = self._create_stateful_set(name, args)
        self.register_outputs({"service": self.service.metadata})

    def _create_volume(self, name: str, args: ControllerArgs) -> DataVolume:
        volume = DataVolumeArgs(
            scope=args.scope,
            cloud=args.cloud,
            claim=STATE_CLAIM,
            component=CONTROLLER,
            size=args.storage,
            access_mode="ReadWriteOnce",
            storage_class=args.storage_class,
            protect=args.protect,
            outside_namespace=args.outside_namespace,
        )
        return data_volume(f"{name}-state", volume, self._child)

    def _create_account(self, name: str, scope: Scope) -> k8s.core.v1.ServiceAccount:
        """The agent's rights: to follow the one ConfigMap, and to see which pods and pools exist.

        The latter is for node records whose pods are gone for good; it deletes records in Slurm, nothing in Kubernetes.
        The end of slurmctld needs it too, and to know whether the namespace goes.
        """
        account = k8s.core.v1.ServiceAccount(
            f"{name}-account", metadata=scope.metadata(CONTROLLER, CONTROLLER), opts=self._child
        )
        role = k8s.rbac.v1.Role(
            f"{name}-role",
            metadata=scope.metadata(CONTROLLER, CONTROLLER),
            rules=[
                k8s.rbac.v1.PolicyRuleArgs(
                    api_groups=[""],
                    resources=["configmaps"],
                    resource_names=[CONFIG_MAP],
                    verbs=["get", "list", "watch"],
                ),
                k8s.rbac.v1.PolicyRuleArgs(api_groups=[""], resources=["pods"], verbs=["get", "list"]),
                k8s.rbac.v1.PolicyRuleArgs(api_groups=["apps"], resources=["statefulsets"], verbs=["get", "list"]),
                k8s.rbac.v1.PolicyRuleArgs(
                    api_groups=[""], resources=["namespaces"], resource_names=[scope.name], verbs=["get"]
                ),
            ],
            opts=self._child,
        )
        k8s.rbac.v1.RoleBinding(
            f"{name}-role-binding",
            metadata=scope.metadata(CONTROLLER, CONTROLLER),
            role_ref=k8s.rbac.v1.RoleRefArgs(
                api_group="rbac.authorization.k8s.io", kind="Role", name=role.metadata.name
            ),
            subjects=[
                k8s.rbac.v1.SubjectArgs(
                    kind="ServiceAccount", name=account.metadata.name, namespace=account.metadata.namespace
                )
            ],
            opts=self._child,
        )
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
                ports=[
                    k8s.core.v1.ServicePortArgs(name="slurmctld", port=SLURMCTLD_PORT, target_port=SLURMCTLD_PORT),
                    k8s.core.v1.ServicePortArgs(name="config-agent", port=AGENT_PORT, target_port=AGENT_PORT),
                ],
            ),
            opts=self._child,
        )

    def _create_stateful_set(self, name: str, args: ControllerArgs) -> k8s.apps.v1.StatefulSet:
        scope = args.scope
        config = k8s.core.v1.ConfigMapVolumeSourceArgs(name=args.config_map)
        pod = k8s.core.v1.PodSpecArgs(
            service_account_name=self.account.metadata.name,
            enable_service_links=False,
            image_pull_secrets=scope.pull_secrets,
            termination_grace_period_seconds=LAST_JOB_SECONDS,
            dns_config=scope.node_dns,
            init_containers=[munge_sidecar(args.image)],
            containers=[_slurmctld(args), _config_agent(args, self._volume)],
            volumes=[
                *munge_volumes(args.munge_secret),
                jwt_volume(args.jwt_secret),
                claim_volume("state", self.claim.metadata.name),
                empty_dir("run", size_limit=SMALL),
                token_volume(),
                k8s.core.v1.VolumeArgs(name="config", config_map=config),
            ],
        )
        return k8s.apps.v1.StatefulSet(
            f"{name}-pods",
            metadata=scope.metadata(CONTROLLER, CONTROLLER),
            spec=k8s.apps.v1.StatefulSetSpecArgs(
                replicas=1,
                service_name=NODES_SERVICE,
                selector=k8s.meta.v1.LabelSelectorArgs(match_labels=scope.selector(CONTROLLER)),
                template=pod_template(
                    scope,
                    scope.labels(CONTROLLER),
                    args.cloud.placement("controller"),
                    with_sssd(scope, pod, args.image),
                ),
            ),
            opts=pulumi.ResourceOptions(
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
        image=args.image,
        command=program("slurmctld"),
        ports=[k8s.core.v1.ContainerPortArgs(name="slurmctld", container_port=SLURMCTLD_PORT)],
        # For Slurm's own commands in this container: `kubectl exec controller-0 -c slurmctld -- sinfo`.
        env=env(SLURM_CONF=ACTIVE_CONF),
        lifecycle=k8s.core.v1.LifecycleArgs(pre_stop=k8s.core.v1.LifecycleHandlerArgs(exec_=leave)),
        readiness_probe=tcp_probe(SLURMCTLD_PORT, period=5),
        startup_probe=starting(tcp_probe(SLURMCTLD_PORT, period=5)),
        # The token is for the preStop hook.
        volume_mounts=[*_mounts(), jwt_mount(), token_mount()],
        resources=resources(cpu=args.cpu, memory=args.memory),
    )


def _config_agent(args: ControllerArgs, state: DataVolume) -> k8s.core.v1.ContainerArgs:
    return k8s.core.v1.ContainerArgs(
        name="config-agent",
        image=args.image,
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
