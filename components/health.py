"""Health: the settings of the checks, and the watcher that drains and resumes nodes for what they find."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from components.clouds.base import Placement
from components.confinement import token_mount, token_volume
from components.pods import (
    SMALL,
    STARTING,
    Scope,
    apart,
    children_of,
    empty_dir,
    env,
    mount,
    munge_mount,
    munge_sidecar,
    munge_volumes,
    pod_template,
    program,
    resources,
    waits,
)
from config.health import Machines
from slurm.health import NODES_DIR, SETTINGS_DIR, SETTINGS_MAP, TESTER, TESTS_FILE, WATCH
from slurm.names import CONTROLLER
from slurm.naming import content_name

COMPONENT = WATCH

LEAVES_AFTER = 5
"""Seconds until the watcher is started elsewhere when its own machine is lost. Kubernetes' default, five minutes, is
longer than Slurm itself needs to notice (SlurmdTimeout)."""


@dataclass(frozen=True, kw_only=True)
class HealthArgs:
    """Inputs of `Health`."""

    scope: Scope
    settings: Mapping[str, str]
    """Files for the checks and the tests, by name."""
    tests: bool
    """Whether tests of nodes run."""
    environment: Mapping[str, str]
    """What `slurm.health.watch_environment` returns."""
    machines: Machines
    image: str
    """The controller's, which has the watcher."""
    placement: Placement
    munge_secret: pulumi.Input[str]
    config_map: pulumi.Input[str]
    """Slurm's files."""
    outside_namespace: pulumi.ResourceOptions
    """For the cluster role and its binding, which do not go away with the namespace."""


class Health(pulumi.ComponentResource):
    """The checks' settings, and a Deployment of one pod: the watcher.

    It may be restarted at any point: what it needs to know is in Slurm and in Kubernetes. It is in a pod of its own, so
    that a change of its settings does not restart slurmctld, and so that no other program has its rights.
    """

    settings: k8s.core.v1.ConfigMap

    def __init__(self, name: str, args: HealthArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slurmstack:index:Health", name, None, apart(opts))
        self._child = children_of(self, opts)
        self._outside = args.outside_namespace.merge(pulumi.ResourceOptions(parent=self))
        # Changed in place: kubelet renews the file in the workers' pods within a minute or two.
        self.settings = k8s.core.v1.ConfigMap(
            f"{name}-settings",
            metadata=args.scope.metadata(SETTINGS_MAP, COMPONENT),
            data=dict(args.settings),
            opts=self._child,
        )
        self._account = k8s.core.v1.ServiceAccount(
            f"{name}-account", metadata=args.scope.metadata(WATCH, COMPONENT), opts=self._child
        )
        if args.machines.follow:
            self._allow_pods(name, args)
            self._allow_nodes(name, args)
        self.deployment = self._create_deployment(name, args)
        self.register_outputs({"settings": self.settings.metadata})

    def _allow_pods(self, name: str, args: HealthArgs) -> None:
        """To see where workers run, and to write events about them; to evict them only if that is asked for."""
        metadata = args.scope.metadata(WATCH, COMPONENT)
        rules = [_rule("pods", "list", "watch"), _rule("events", "create")]
        if args.machines.release == "evict":
            rules.append(_rule("pods/eviction", "create"))
        role = k8s.rbac.v1.Role(f"{name}-role", metadata=metadata, rules=rules, opts=self._child)
        k8s.rbac.v1.RoleBinding(
            f"{name}-role-binding",
            metadata=metadata,
            role_ref=k8s.rbac.v1.RoleRefArgs(
                api_group="rbac.authorization.k8s.io", kind="Role", name=role.metadata.name
            ),
            subjects=[self._subject()],
            opts=self._child,
        )

    def _allow_nodes(self, name: str, args: HealthArgs) -> None:
        """To read the Kubernetes nodes, which are in no namespace; to change them only if that is asked for."""
        # Names of cluster roles are shared by all clusters in one Kubernetes, so the namespace is in them.
        metadata = k8s.meta.v1.ObjectMetaArgs(name=f"{args.scope.name}-{WATCH}", labels=args.scope.labels(COMPONENT))
        machines = args.machines
        rules = [_rule("nodes", "list", "watch", *(("get", "patch") if machines.release != "none" else ()))]
        if machines.conditions or machines.release_condition is not None:
            rules.append(_rule("nodes/status", "patch"))
        role = k8s.rbac.v1.ClusterRole(f"{name}-cluster-role", metadata=metadata, rules=rules, opts=self._outside)
        k8s.rbac.v1.ClusterRoleBinding(
            f"{name}-cluster-role-binding",
            metadata=metadata,
            role_ref=k8s.rbac.v1.RoleRefArgs(
                api_group="rbac.authorization.k8s.io", kind="ClusterRole", name=role.metadata.name
            ),
            subjects=[self._subject()],
            opts=self._outside,
        )

    def _subject(self) -> k8s.rbac.v1.SubjectArgs:
        return k8s.rbac.v1.SubjectArgs(
            kind="ServiceAccount", name=self._account.metadata.name, namespace=self._account.metadata.namespace
        )

    def _settings_volume(self) -> k8s.core.v1.VolumeArgs:
        source = k8s.core.v1.ConfigMapVolumeSourceArgs(name=self.settings.metadata.name)
        return k8s.core.v1.VolumeArgs(name="health", config_map=source)

    def _create_deployment(self, name: str, args: HealthArgs) -> k8s.apps.v1.Deployment:
        scope = args.scope
        config = k8s.core.v1.ConfigMapVolumeSourceArgs(name=args.config_map)
        pod = k8s.core.v1.PodSpecArgs(
            service_account_name=self._account.metadata.name,
            enable_service_links=False,
            image_pull_secrets=scope.pull_secrets,
            affinity=_beside_the_controller(scope),
            termination_grace_period_seconds=10,
            dns_config=scope.node_dns,
            init_containers=[munge_sidecar(args.image)],
            containers=[_watcher(args), *([_tester(args)] if args.tests else [])],
            volumes=[
                *munge_volumes(args.munge_secret),
                k8s.core.v1.VolumeArgs(name="config", config_map=config),
                *([token_volume()] if args.machines.follow else []),
                *([self._settings_volume(), empty_dir("nodes", size_limit=SMALL)] if args.tests else []),
            ],
        )
        return k8s.apps.v1.Deployment(
            f"{name}-pods",
            metadata=scope.metadata(WATCH, COMPONENT),
            spec=k8s.apps.v1.DeploymentSpecArgs(
                replicas=1,
                # Never two at a time: each would count drains that the other has not made yet.
                strategy=k8s.apps.v1.DeploymentStrategyArgs(type="Recreate"),
                selector=k8s.meta.v1.LabelSelectorArgs(match_labels=scope.selector(COMPONENT)),
                template=pod_template(scope, scope.labels(COMPONENT), args.placement, pod, leaves_after=LEAVES_AFTER),
            ),
            opts=self._child.merge(waits(STARTING)),
        )


def _beside_the_controller(scope: Scope) -> k8s.core.v1.AffinityArgs:
    """Rather on the controller's machine, without which there is nothing to watch.

    The loss of another machine is then noticed at once, not only when the watcher itself has been started elsewhere.
    """
    controller = k8s.core.v1.PodAffinityTermArgs(
        topology_key="kubernetes.io/hostname",
        label_selector=k8s.meta.v1.LabelSelectorArgs(match_labels=scope.selector(CONTROLLER)),
    )
    wish = k8s.core.v1.WeightedPodAffinityTermArgs(weight=100, pod_affinity_term=controller)
    return k8s.core.v1.AffinityArgs(
        pod_affinity=k8s.core.v1.PodAffinityArgs(preferred_during_scheduling_ignored_during_execution=[wish])
    )


def _rule(resource: str, *verbs: str) -> k8s.rbac.v1.PolicyRuleArgs:
    return k8s.rbac.v1.PolicyRuleArgs(api_groups=[""], resources=[resource], verbs=list(verbs))


def _watcher(args: HealthArgs) -> k8s.core.v1.ContainerArgs:
    return k8s.core.v1.ContainerArgs(
        name=WATCH,
        image=args.image,
        command=program(WATCH),
        # What scontrol needs of slurm.conf, the address of slurmctld above all, never changes while the cluster lives.
        env=env(SLURM_CONF="/config/slurm/slurm.conf", NAMESPACE=args.scope.name, **args.environment),
        volume_mounts=[
            munge_mount(),
            mount("config", "/config/slurm", read_only=True),
            *([token_mount()] if args.machines.follow else []),
            *([mount("nodes", NODES_DIR)] if args.tests else []),
        ],
        resources=resources(cpu="20m", memory="48Mi"),
    )


def _tester(args: HealthArgs) -> k8s.core.v1.ContainerArgs:
    return k8s.core.v1.ContainerArgs(
        name=TESTER,
        image=args.image,
        command=program(TESTER),
        env=env(
            SLURM_CONF="/config/slurm/slurm.conf",
            SETTINGS=f"{SETTINGS_DIR}/{TESTS_FILE}",
            # It reads them once: other settings are another pod.
            SETTINGS_ARE=content_name("tests", args.settings[TESTS_FILE]),
        ),
        volume_mounts=[
            munge_mount(),
            mount("config", "/config/slurm", read_only=True),
            mount("health", SETTINGS_DIR, read_only=True),
            mount("nodes", NODES_DIR, read_only=True),
        ],
        resources=resources(cpu="10m", memory="48Mi"),
    )
