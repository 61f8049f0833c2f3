"""What no pod of the cluster may do. One pass over each pod's specification, so that none is forgotten."""

from __future__ import annotations

from typing import Any

import pulumi_kubernetes as k8s

from slurm.rights import CAPABILITIES, TEMPORARY

SEALED_LATER = {
    "sshd": "binds the pod's view into the jail first; its own start makes the root read-only then",
    "slurmd": "as sshd; without the jail it stays so, as jobs have nothing else to write to",
    "sssd": "keeps caches, logs and its configuration where Debian's package has them; no user reaches its container",
}
"""Containers that start with a root file system that can be written, and why."""

ALLOWS_SUDO = ("sshd", "slurmd")
"""Containers in which a program may gain capabilities by being executed."""

_FOR_USERS = {"kernel.shm_rmid_forced": "1"}
"""Where users' processes are. System V's shared memory goes with the last process that has it attached then. It would
count for its job else, and the kernel could not free it by ending a process. Kubernetes calls the setting safe: every
kubelet takes it. In a user namespace the kernel refuses it before 6.9."""

_TEMPORARY_SIZE = "20Gi"
"""For what MariaDB sorts on disk; the others are bound before that, by their own limit of ephemeral storage."""

_TOKEN_DIRECTORY = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105 - a path
_TOKEN_SECONDS = 3607
"""As Kubernetes itself asks for; kubelet renews a token when most of its time is over."""


def confine(spec: k8s.core.v1.PodSpecArgs, *, user_namespaces: bool) -> None:
    """Only the kernel's calls that the runtime allows by default, no token, and the capabilities that are written down.

    What a container's own security context says already stays as it is.
    """
    spec.automount_service_account_token = False
    spec.host_users = False if user_namespaces else None
    pod: Any = spec.security_context or k8s.core.v1.PodSecurityContextArgs()
    pod.seccomp_profile = k8s.core.v1.SeccompProfileArgs(type="RuntimeDefault")
    spec.security_context = pod
    containers: list[Any] = [*_items(spec.init_containers), *_items(spec.containers)]
    for container in containers:
        _confine_container(container)
    if not user_namespaces and any(container.name in ALLOWS_SUDO for container in containers):
        pod.sysctls = [k8s.core.v1.SysctlArgs(name=name, value=value) for name, value in _FOR_USERS.items()]
    if any(container.name in TEMPORARY for container in containers):
        source = k8s.core.v1.EmptyDirVolumeSourceArgs(size_limit=_TEMPORARY_SIZE)
        directory = k8s.core.v1.VolumeArgs(name="temporary", empty_dir=source)
        spec.volumes = [*_items(spec.volumes), directory]


def _confine_container(container: Any) -> None:
    context = container.security_context or k8s.core.v1.SecurityContextArgs()
    if context.capabilities is None:
        allowed = CAPABILITIES.get(container.name, ())
        context.capabilities = k8s.core.v1.CapabilitiesArgs(drop=["ALL"], add=[*allowed] or None)
    if container.name not in ALLOWS_SUDO and "SYS_ADMIN" not in CAPABILITIES.get(container.name, ()):
        context.allow_privilege_escalation = False  # which Kubernetes refuses together with SYS_ADMIN
    if container.name not in SEALED_LATER:
        context.read_only_root_filesystem = True
    container.security_context = context
    if container.name in TEMPORARY:
        temporary = k8s.core.v1.VolumeMountArgs(name="temporary", mount_path="/tmp")
        container.volume_mounts = [*_items(container.volume_mounts), temporary]


def _items(given: Any) -> list[Any]:
    """A list in a pod of ours; Pulumi's types would also allow one that is not known yet, which none is."""
    return list(given or ())


def token_volume(*, mode: int = 0o400) -> k8s.core.v1.VolumeArgs:
    """What a pod's ServiceAccount needs to talk to the API server, for the containers with a `token_mount` alone.

    By default root's alone: slurmctld, whose container has it for a hook of kubelet's, is not root.
    """
    projections = [
        k8s.core.v1.VolumeProjectionArgs(
            service_account_token=k8s.core.v1.ServiceAccountTokenProjectionArgs(
                path="token", expiration_seconds=_TOKEN_SECONDS
            )
        ),
        k8s.core.v1.VolumeProjectionArgs(
            config_map=k8s.core.v1.ConfigMapProjectionArgs(
                name="kube-root-ca.crt", items=[k8s.core.v1.KeyToPathArgs(key="ca.crt", path="ca.crt")]
            )
        ),
        k8s.core.v1.VolumeProjectionArgs(
            downward_api=k8s.core.v1.DownwardAPIProjectionArgs(
                items=[
                    k8s.core.v1.DownwardAPIVolumeFileArgs(
                        path="namespace", field_ref=k8s.core.v1.ObjectFieldSelectorArgs(field_path="metadata.namespace")
                    )
                ]
            )
        ),
    ]
    source = k8s.core.v1.ProjectedVolumeSourceArgs(sources=projections, default_mode=mode)
    return k8s.core.v1.VolumeArgs(name="token", projected=source)


def token_mount() -> k8s.core.v1.VolumeMountArgs:
    """Where Kubernetes' clients look for it."""
    return k8s.core.v1.VolumeMountArgs(name="token", mount_path=_TOKEN_DIRECTORY, read_only=True)
