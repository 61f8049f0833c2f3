"""Health: the settings of the checks, and the watcher that drains and resumes nodes for what they find."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from components.configuration import Configuration
from components.kit.confinement import token_mount, token_volume
from components.kit.context import STARTING, Scope, apart, children_of, waits
from components.kit.rbac import allow, allow_everywhere, rule
from components.kit.workload import (
    config_volume,
    env,
    mount,
    munge_mount,
    munge_sidecar,
    munge_volumes,
    pod_template,
    program,
    resources,
)
from components.secrets import Secrets
from config.sections.health import Health as HealthConfig
from slurm.health import SETTINGS_DIR, SETTINGS_MAP, TESTER, TESTS_FILE, WATCH, watch_environment
from slurm.names import CONTROLLER, content_name

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
    health: HealthConfig
    secrets: Secrets
    configuration: Configuration


class Health(pulumi.ComponentResource):
    """The checks' settings, and a Deployment of one pod: the watcher.

    It may be restarted at any point: what it needs to know is in Slurm and in Kubernetes. It is in a pod of its own, so
    that a change of its settings does not restart slurmctld, and so that no other program has its rights.
    """

    settings: k8s.core.v1.ConfigMap

    def __init__(self, name: str, args: HealthArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slurmstack:index:Health", name, None, apart(opts))
        self._child = children_of(self, opts)
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
        if args.health.machines.follow:
            self._allow_pods(name, args)
            self._allow_nodes(name, args)
        self.deployment = self._create_deployment(name, args)
        self.register_outputs({"settings": self.settings.metadata})

    def _allow_pods(self, name: str, args: HealthArgs) -> None:
        """To see where workers run, and to write events about them; to evict them only if that is asked for."""
        rules = [rule("pods", "list", "watch"), rule("events", "create")]
        if args.health.machines.release == "evict":
            rules.append(rule("pods/eviction", "create"))
        allow(name, args.scope.metadata(WATCH, COMPONENT), self._account, rules, self._child)

    def _allow_nodes(self, name: str, args: HealthArgs) -> None:
        """To read the Kubernetes nodes, which are in no namespace; to change them only if that is asked for."""
        machines = args.health.machines
        rules = [rule("nodes", "list", "watch", *(("get", "patch") if machines.release != "none" else ()))]
        if machines.release != "none" and machines.release_condition is not None:
            rules.append(rule("nodes/status", "patch"))
        allow_everywhere(name, args.scope, COMPONENT, self._account, rules, parent=self)

    def _create_deployment(self, name: str, args: HealthArgs) -> k8s.apps.v1.Deployment:
        scope = args.scope
        image, tests, machines = scope.image("controller"), args.health.tests.enabled, args.health.machines
        pod = k8s.core.v1.PodSpecArgs(
            service_account_name=self._account.metadata.name,
            affinity=_beside_the_controller(scope),
            termination_grace_period_seconds=10,
            dns_config=scope.node_dns,
            init_containers=[munge_sidecar(image)],
            containers=[_watcher(args), *([_tester(args)] if tests else [])],
            volumes=[
                *munge_volumes(args.secrets.munge.metadata.name),
                args.configuration.files_as("config"),
                *([token_volume()] if machines.follow else []),
                *([config_volume("health", self.settings.metadata.name)] if tests else []),
            ],
        )
        placement = scope.cloud.placement("system")
        return k8s.apps.v1.Deployment(
            f"{name}-pods",
            metadata=scope.metadata(WATCH, COMPONENT),
            spec=k8s.apps.v1.DeploymentSpecArgs(
                replicas=1,
                # Never two at a time: each would count drains that the other has not made yet.
                strategy=k8s.apps.v1.DeploymentStrategyArgs(type="Recreate"),
                selector=scope.label_selector(COMPONENT),
                template=pod_template(scope, scope.labels(COMPONENT), placement, pod, leaves_after=LEAVES_AFTER),
            ),
            opts=self._child.merge(waits(STARTING)),
        )


def _beside_the_controller(scope: Scope) -> k8s.core.v1.AffinityArgs:
    """Rather on the controller's machine, without which there is nothing to watch.

    The loss of another machine is then noticed at once, not only when the watcher itself has been started elsewhere.
    """
    controller = k8s.core.v1.PodAffinityTermArgs(
        topology_key="kubernetes.io/hostname",
        label_selector=scope.label_selector(CONTROLLER),
    )
    wish = k8s.core.v1.WeightedPodAffinityTermArgs(weight=100, pod_affinity_term=controller)
    return k8s.core.v1.AffinityArgs(
        pod_affinity=k8s.core.v1.PodAffinityArgs(preferred_during_scheduling_ignored_during_execution=[wish])
    )


def _watcher(args: HealthArgs) -> k8s.core.v1.ContainerArgs:
    return k8s.core.v1.ContainerArgs(
        name=WATCH,
        image=args.scope.image("controller"),
        command=program(WATCH),
        # What scontrol needs of slurm.conf, the address of slurmctld above all, never changes while the cluster lives.
        env=env(SLURM_CONF="/config/slurm/slurm.conf", NAMESPACE=args.scope.name, **watch_environment(args.health)),
        volume_mounts=[
            munge_mount(),
            mount("config", "/config/slurm", read_only=True),
            *([token_mount()] if args.health.machines.follow else []),
        ],
        resources=resources(cpu="20m", memory="48Mi"),
    )


def _tester(args: HealthArgs) -> k8s.core.v1.ContainerArgs:
    return k8s.core.v1.ContainerArgs(
        name=TESTER,
        image=args.scope.image("controller"),
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
        ],
        resources=resources(cpu="10m", memory="48Mi"),
    )
