"""Which cloud a stack file names; a Kubernetes cluster that is already there, which may be the local one."""

from __future__ import annotations

import os

import pulumi
import pulumi_kubernetes as k8s

from components.clouds.base import CloudResources, StaticVolumeArgs, host_volume, kubernetes_provider
from config.cluster import ClusterConfig
from config.sections.cloud import ExistingCloud, NebiusCloud
from slurm.local_cluster import LOCAL_CONTEXT, kubeconfig, local_directory, login_key


class ExistingCluster(CloudResources):
    """Objects go to the named context; claims are served by the cluster's storage classes."""

    def __init__(self, cloud: ExistingCloud) -> None:
        context = cloud.context or LOCAL_CONTEXT
        self.provider = kubernetes_provider(self._kubeconfig(cloud), identifier=context, context=context)

    def _kubeconfig(self, cloud: ExistingCloud) -> str | None:
        return os.path.expanduser(cloud.kubeconfig) if cloud.kubeconfig else None  # noqa: PTH111  stays a plain string


class LocalCluster(ExistingCluster):
    """The two-node Kubernetes of this machine. Its nodes share one file system, so a directory is a shared volume."""

    def __init__(self, cloud: ExistingCloud) -> None:
        super().__init__(cloud)
        public_key = login_key().with_suffix(".pub")
        self.login_keys = (public_key.read_text(encoding="utf-8").strip(),) if public_key.exists() else ()

    def _kubeconfig(self, cloud: ExistingCloud) -> str | None:
        del cloud
        return str(kubeconfig())

    def static_volume(
        self, args: StaticVolumeArgs, opts: pulumi.ResourceOptions
    ) -> k8s.core.v1.PersistentVolume | None:
        """A directory of this machine, reserved for the one claim."""
        path = local_directory() / "volumes" / args.namespace / args.claim
        return host_volume(args, str(path), opts, kind="DirectoryOrCreate")

    def worker_cpu_request(self, cpus: int) -> str:
        """A twentieth: each local node counts the whole machine as its own, and two workers must fit on two cores."""
        return f"{max(1, cpus * 50)}m"


def connect(config: ClusterConfig) -> CloudResources:
    """The cloud of the configuration, with what it makes."""
    cloud = config.cloud
    if isinstance(cloud, NebiusCloud):
        # Its provider takes half a second to load, which only those wait for who use it.
        from components.clouds.nebius import cloud as nebius  # noqa: PLC0415
        from components.clouds.nebius.resources import create_provider  # noqa: PLC0415

        opts = pulumi.ResourceOptions(providers=[create_provider(cloud.project_id)])
        return nebius.NebiusCloud(f"{cloud.prefix(config.cluster.namespace)}-cloud", config, cloud, opts)
    return LocalCluster(cloud) if cloud.is_local else ExistingCluster(cloud)
