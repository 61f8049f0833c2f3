"""Health: the settings of the checks, and the watcher that drains and resumes nodes for what they find."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from components.configuration import Configuration
from components.kit import pods, rbac, volumes, workloads
from components.kit.context import Scope, apart, children_of
from components.secrets import Secrets
from config.cluster import ClusterConfig
from config.sections.health import Health as HealthConfig
from slurm.health import (
    SETTINGS_DIR,
    SETTINGS_FILE,
    SETTINGS_MAP,
    TESTER,
    TESTS_FILE,
    WATCH,
    check_settings,
    node_test_settings,
    watch_settings,
)
from slurm.names import CONTROLLER, content_name

LEAVES_AFTER = 5
"""Seconds until the watcher is started elsewhere when its own machine is lost. Kubernetes' default, five minutes, is
longer than Slurm itself needs to notice (SlurmdTimeout)."""


@dataclass(frozen=True, kw_only=True)
class HealthArgs:
    """Inputs of `Health`."""

    scope: Scope
    config: ClusterConfig
    secrets: Secrets
    configuration: Configuration

    @property
    def health(self) -> HealthConfig:
        """The section."""
        return self.config.health

    @property
    def settings(self) -> dict[str, str]:
        """Files for the checks and the tests, by name."""
        placement = self.scope.cloud.worker_placement
        infiniband = {name for name, pool in self.config.worker_nodes.items() if placement(name, pool).devices}
        tests = {TESTS_FILE: node_test_settings(self.config, infiniband)} if self.health.tests.enabled else {}
        return {SETTINGS_FILE: check_settings(self.health, infiniband), **tests}


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
            metadata=args.scope.metadata(SETTINGS_MAP, WATCH),
            data=args.settings,
            opts=self._child,
        )
        self._account = k8s.core.v1.ServiceAccount(
            f"{name}-account", metadata=args.scope.metadata(WATCH, WATCH), opts=self._child
        )
        if args.health.machines.follow:
            rules = [rbac.rule("pods", "list", "watch", "delete")]  # to delete those of machines that are proven dead
            rbac.allow(name, args.scope.metadata(WATCH, WATCH), self._account, rules, self._child)
            self._allow_nodes(name, args)
        self.deployment = self._create_deployment(name, args)
        self.register_outputs({"settings": self.settings.metadata})

    def _allow_nodes(self, name: str, args: HealthArgs) -> None:
        """To read the Kubernetes nodes, which are in no namespace; to change them only if that is asked for."""
        machines = args.health.machines
        rules = [rbac.rule("nodes", "get", "list", "watch", *(["patch"] if machines.release != "none" else []))]
        if machines.release != "none" and machines.release_condition is not None:
            rules.append(rbac.rule("nodes/status", "patch"))
        rbac.allow_everywhere(name, args.scope, WATCH, self._account, rules, parent=self)

    def _create_deployment(self, name: str, args: HealthArgs) -> k8s.apps.v1.Deployment:
        scope = args.scope
        image, tests, machines = scope.image("controller"), args.health.tests.enabled, args.health.machines
        pod = k8s.core.v1.PodSpecArgs(
            service_account_name=self._account.metadata.name,
            # Where the controller's machine is lost, the watcher says so, and acts on proof.
            affinity=workloads.rather_apart(scope.label_selector(CONTROLLER)),
            termination_grace_period_seconds=10,
            dns_config=scope.node_dns,
            init_containers=[pods.munge_sidecar(image)],
            containers=[_watcher(args), *([_tester(args)] if tests else [])],
            volumes=[
                *pods.munge_volumes(args.secrets.munge.metadata.name),
                args.configuration.files_as("config"),
                *([pods.token_volume()] if machines.follow else []),
                *([volumes.config_volume("health", self.settings.metadata.name)] if tests else []),
            ],
        )
        placement = scope.cloud.placement("system")
        template = pods.pod_template(scope, WATCH, placement, pod, leaves_after=LEAVES_AFTER)
        # Each of two would count drains that the other has not made yet.
        return workloads.deployment(name, scope, WATCH, template, self._child, strategy=workloads.never_two())


def _watcher(args: HealthArgs) -> k8s.core.v1.ContainerArgs:
    return k8s.core.v1.ContainerArgs(
        name=WATCH,
        image=args.scope.image("controller"),
        command=pods.program(WATCH),
        # What scontrol needs of slurm.conf, the address of slurmctld above all, never changes while the cluster lives.
        env=pods.env(
            SLURM_CONF="/config/slurm/slurm.conf", NAMESPACE=args.scope.name, SETTINGS=watch_settings(args.health)
        ),
        volume_mounts=[
            pods.munge_mount(),
            volumes.mount("config", "/config/slurm", read_only=True),
            *([pods.token_mount()] if args.health.machines.follow else []),
        ],
        resources=pods.resources(cpu="20m", memory="48Mi"),
    )


def _tester(args: HealthArgs) -> k8s.core.v1.ContainerArgs:
    return k8s.core.v1.ContainerArgs(
        name=TESTER,
        image=args.scope.image("controller"),
        command=pods.program(TESTER),
        env=pods.env(
            SLURM_CONF="/config/slurm/slurm.conf",
            SETTINGS=f"{SETTINGS_DIR}/{TESTS_FILE}",
            # It reads them once: other settings are another pod.
            SETTINGS_ARE=content_name("tests", args.settings[TESTS_FILE]),
        ),
        volume_mounts=[
            pods.munge_mount(),
            volumes.mount("config", "/config/slurm", read_only=True),
            volumes.mount("health", SETTINGS_DIR, read_only=True),
        ],
        resources=pods.resources(cpu="10m", memory="48Mi"),
    )
