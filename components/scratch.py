"""Scratch: the volume that jobs' /tmp lies on, where it is not on the disk that Kubernetes itself uses."""

from __future__ import annotations

import pulumi_kubernetes as k8s

from components.kit.context import Scope
from components.kit.workload import empty_dir, mount
from config.sections.workers import Scratch, WorkerPool
from slurm.names import WORKER

_CLAIM, _DISK = "scratch", "disk"
"""Names of the volume. One name for both would not do: server-side apply may leave of the old kind what Kubernetes
itself has added to it, and a volume of two kinds is refused."""


def temporary_volume(scope: Scope, name: str, pool: WorkerPool) -> k8s.core.v1.VolumeArgs:
    """The volume of /tmp in a worker of the pool of this name; without scratch a directory of the machine's disk."""
    scratch = pool.scratch
    if scratch is None:
        return empty_dir("tmp", size_limit=pool.tmp)
    if scratch.storage_class is None:
        return _of_the_machine(scratch)
    template = k8s.core.v1.PersistentVolumeClaimTemplateArgs(
        metadata=k8s.meta.v1.ObjectMetaArgs(labels=scope.labels(WORKER, pool=name)),
        spec=k8s.core.v1.PersistentVolumeClaimSpecArgs(
            access_modes=["ReadWriteOnce"],
            storage_class_name=scratch.storage_class,
            resources=k8s.core.v1.VolumeResourceRequirementsArgs(requests={"storage": scratch.size}),
        ),
    )
    source = k8s.core.v1.EphemeralVolumeSourceArgs(volume_claim_template=template)
    return k8s.core.v1.VolumeArgs(name=_CLAIM, ephemeral=source)


def _of_the_machine(scratch: Scratch) -> k8s.core.v1.VolumeArgs:
    """Never made: where the disk is not mounted, the pod must not start on the disk below."""
    assert scratch.host_path is not None
    source = k8s.core.v1.HostPathVolumeSourceArgs(path=scratch.host_path, type="Directory")
    return k8s.core.v1.VolumeArgs(name=_DISK, host_path=source)


def temporary_mount(scope: Scope, pool: WorkerPool) -> k8s.core.v1.VolumeMountArgs:
    """It at /tmp. Of a directory of the machine each pod sees its own part, also beside those of other clusters."""
    if pool.scratch is None:
        return mount("tmp", "/tmp")
    if pool.scratch.host_path is None:
        return mount(_CLAIM, "/tmp")
    return k8s.core.v1.VolumeMountArgs(name=_DISK, mount_path="/tmp", sub_path_expr=f"{scope.name}/$(POD_NAME)")


def scratch_env(pool: WorkerPool) -> list[k8s.core.v1.EnvVarArgs]:
    """What the worker's programs are told of it (images/worker/scratch.py)."""
    if pool.scratch is None:
        return []
    kind = "storage_class" if pool.scratch.host_path is None else "host_path"
    found = [k8s.core.v1.EnvVarArgs(name="SCRATCH", value=kind)]
    if pool.scratch.host_path is not None:
        field = k8s.core.v1.ObjectFieldSelectorArgs(field_path="metadata.name")
        source = k8s.core.v1.EnvVarSourceArgs(field_ref=field)
        found.append(k8s.core.v1.EnvVarArgs(name="POD_NAME", value_from=source))
    return found
