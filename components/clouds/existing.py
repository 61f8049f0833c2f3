"""A Kubernetes cluster that is already there: any kubeconfig context, or the local cluster of this machine."""

from __future__ import annotations

import os
from collections.abc import Mapping

import pulumi
import pulumi_kubernetes as k8s

from components.clouds.base import Placement, StaticVolumeArgs, host_volume, kubernetes_provider
from config.nebius.cloud import Role
from config.sections.cloud import ExistingCloud
from config.sections.workers import WorkerPool
from slurm.local_cluster import LOCAL_CONTEXT, kubeconfig, local_directory, login_key


class ExistingCluster:
    """Objects go to the named context; claims are served by the cluster's storage classes."""

    login_keys: tuple[str, ...] = ()
    login_annotations: Mapping[str, pulumi.Input[str]] = {}
    volume_filesystem: str | None = None
    exports: Mapping[str, pulumi.Input[str]] = {}

    def __init__(self, cloud: ExistingCloud) -> None:
        context = cloud.context or LOCAL_CONTEXT
        self.provider = kubernetes_provider(self._kubeconfig(cloud), identifier=context, context=context)

    def _kubeconfig(self, cloud: ExistingCloud) -> str | None:
        return os.path.expanduser(cloud.kubeconfig) if cloud.kubeconfig else None  # noqa: PTH111  stays a plain string

    def static_volume(
        self, args: StaticVolumeArgs, opts: pulumi.ResourceOptions
    ) -> k8s.core.v1.PersistentVolume | None:
        """None: an existing cluster has storage classes."""
        del args, opts
        return None

    def worker_cpu_request(self, cpus: int) -> str:
        """All of them: one worker has its CPUs to itself."""
        return str(cpus)

    def placement(self, role: Role) -> Placement:
        """Anywhere."""
        del role
        return Placement()

    def worker_placement(self, pool_name: str, pool: WorkerPool) -> Placement:
        """Wherever the pool's own selector and tolerations say."""
        del pool_name, pool
        return Placement()


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
