"""sshd of workers: the container beside slurmd that leads users into their jobs."""

from __future__ import annotations

from collections.abc import Sequence

import pulumi_kubernetes as k8s

from components.jail import Mount, container_mounts, mounts_env
from components.kit import pods, volumes
from components.kit.context import Scope
from components.kit.volumes import JailVolume
from components.secrets import Secrets
from slurm.names import JAIL_DIR, SLURMD_PORT, SSH_PORT
from slurm.users import login_limits

CONTAINER = "worker-sshd"
PUBLIC_KEY_MOUNT = volumes.mount("worker-public-key", "/run/slurm/ssh", read_only=True)
"""What ssh in the jail of a pod knows all workers by (images/jail/known_host.py), where they have sshd."""


def public_key_volume(secrets: Secrets) -> k8s.core.v1.VolumeArgs:
    """The volume of that."""
    return volumes.config_volume("worker-public-key", secrets.worker_public_key.metadata.name)


_UNTIL_SLURMD_ENDS = (
    # As the user `sshd`: of others, processes without a job are ended here.
    "setpriv", "--reuid=sshd", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all",
    "sh", "-c", f"while grep -q ':{SLURMD_PORT:04X} [0-9A-F]*:0000 0A' /proc/net/tcp /proc/net/tcp6; do sleep 1; done",
)  # fmt: skip
"""Whether slurmd listens (state 0A) shows in the network that the containers of a pod share."""


def sshd(scope: Scope, jail: JailVolume, mounts: Sequence[Mount]) -> k8s.core.v1.ContainerArgs:
    """A container beside slurmd. It serves until slurmd ends, whose hook may wait for jobs for days.

    No native sidecar, which would be told to end after slurmd by itself: slurmd would start 1.3 s later (kubelet looks
    once a second whether the one before is there).

    Of slurmd's container it has the volumes with Slurm's configuration, and not the jobs' files.
    """
    # Of processes the kernel counts those of jobs, too: who has many there would not get in. And a login node has more
    # memory: one user could take what all connections have here, instead of half of that.
    limits = login_limits(scope.config.login.user_limits.model_copy(update={"processes": None, "total_memory": None}))
    return k8s.core.v1.ContainerArgs(
        name=CONTAINER,
        image=scope.image("login"),
        command=[f"{pods.LIBEXEC}/{CONTAINER}"],
        lifecycle=k8s.core.v1.LifecycleArgs(
            pre_stop=k8s.core.v1.LifecycleHandlerArgs(exec_=k8s.core.v1.ExecActionArgs(command=[*_UNTIL_SLURMD_ENDS]))
        ),
        env=pods.env(
            JAIL=JAIL_DIR,
            **({"USER_LIMITS": limits} if limits else {}),
            **jail.env,
            **mounts_env(mounts, in_jail=True, shared=jail.shared()),
        ),
        ports=[k8s.core.v1.ContainerPortArgs(name="ssh", container_port=SSH_PORT)],
        security_context=pods.into_jail(CONTAINER),
        volume_mounts=[
            pods.munge_mount(),
            *jail.mounts(),
            *container_mounts(mounts, in_jail=True),
            volumes.mount("worker-host-key", "/secrets/ssh", read_only=True),
            volumes.mount("run", "/run/slurm", read_only=True),
            volumes.mount("spool", "/var/spool/slurmd", read_only=True),
            volumes.mount("ssh-tmp", "/tmp"),
        ],
        resources=pods.resources(cpu="5m", memory="32Mi", memory_limit="1Gi"),
    )


def sshd_volumes(secrets: Secrets) -> list[k8s.core.v1.VolumeArgs]:
    """What a worker has besides."""
    return [
        public_key_volume(secrets),
        volumes.secret_volume("worker-host-key", secrets.worker_host_key.metadata.name),
        volumes.empty_dir("ssh-tmp", size_limit=pods.SMALL),
    ]
