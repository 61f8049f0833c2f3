"""Slurm's configuration: the files, the proof that slurmctld has them, and the rights that a switch tree takes."""

from __future__ import annotations

from collections.abc import Sequence

import pulumi
import pulumi_kubernetes as k8s

from components.kit import pods, rbac, volumes, workloads
from components.kit.context import Scope, apart, children_of
from slurm.conf import config_hash, render
from slurm.names import AGENT_PORT, CONFIG_MAP, CONTROLLER, CONTROLLER_HOST

DEADLINE = 900
"""Seconds for a configuration to become active. On a first start this includes pulling images and filling the jail."""

_VOLUME = "slurm-config"
_MOUNTED = "/config/slurm"


class Configuration(pulumi.ComponentResource):
    """A ConfigMap with a fixed name, changed in place, and a job named after its content.

    The agent beside slurmctld follows the ConfigMap: it lets Slurm parse new files before it publishes them. The job
    ends when they are active, or fails with the parser's message while the old configuration goes on.
    """

    files: k8s.core.v1.ConfigMap

    def __init__(self, name: str, scope: Scope, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slurmstack:index:Configuration", name, None, opts)
        self._child, files = pulumi.ResourceOptions(parent=self), render(scope.config)
        self._image = scope.image("controller")  # it has the program that asks the configuration agent
        self.files = k8s.core.v1.ConfigMap(
            f"{name}-files",
            metadata=scope.metadata(CONFIG_MAP, "configuration"),
            data=files,
            opts=self._child,
        )
        asks = self._container(config_hash(files))
        self.active = workloads.create_job(
            f"{name}-active",
            scope,
            "configuration",
            asks,
            self._child,
            self.files,
            called="config",
            deadline=DEADLINE,
        )
        self.register_outputs({"files": self.files.metadata})

    def waiting_container(self) -> k8s.core.v1.ContainerArgs:
        """A container that ends when the files that are mounted are active, or fails with the parser's message.

        It is the same whatever is in the files, and so is a Job that has to wait for them. Its pod has `volume`.
        """
        container = self._container("--mounted", _MOUNTED)
        container.volume_mounts = [volumes.mount(_VOLUME, _MOUNTED, read_only=True)]
        return container

    @property
    def volume(self) -> k8s.core.v1.VolumeArgs:
        """The files, for the pod of a `waiting_container`."""
        return self.files_as(_VOLUME)

    def files_as(self, volume: str, *, only: Sequence[str] = ()) -> k8s.core.v1.VolumeArgs:
        """The files as a volume of a pod, or `only` some of them."""
        return volumes.config_volume(volume, self.files.metadata.name, only=only)

    def _container(self, *wanted: str) -> k8s.core.v1.ContainerArgs:
        return k8s.core.v1.ContainerArgs(
            name="await-config",
            image=self._image,
            command=[f"{pods.LIBEXEC}/await-config", *wanted],
            env=pods.env(AGENT_URL=f"http://{CONTROLLER_HOST}:{AGENT_PORT}"),
            resources=pods.resources(cpu="10m", memory="32Mi"),
        )


class Topology(pulumi.ComponentResource):
    """Rights of the configuration agent, for a stack with a switch tree only: to follow worker pods and nodes.

    Kubernetes nodes are in no namespace, so this is the one right that reaches out of the cluster's own: to read them.
    """

    def __init__(
        self,
        name: str,
        scope: Scope,
        account: k8s.core.v1.ServiceAccount,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """`account`: the controller's."""
        super().__init__("slurmstack:index:Topology", name, None, apart(opts))
        metadata = scope.metadata(f"{CONTROLLER}-topology", "topology")
        rbac.allow(name, metadata, account, [rbac.rule("pods", "list", "watch")], children_of(self, opts))
        nodes = [rbac.rule("nodes", "list", "watch")]
        rbac.allow_everywhere(name, scope, "topology", account, nodes, parent=self)
        self.register_outputs({})
