"""SSSD beside the daemons that have to know users from LDAP, Active Directory or FreeIPA."""

from __future__ import annotations

from typing import Any

import pulumi_kubernetes as k8s

from components.kit.context import Scope
from components.kit.workload import SMALL, empty_dir, env, mount, program, resources, secret_volume

PIPES = "/var/lib/sss/pipes"
"""Directory of the sockets at which libnss-sss, pam_sss and sss_ssh_authorizedkeys ask."""

_SECRET_DIR = "/secrets/sssd"  # noqa: S105 - a path


def with_sssd(scope: Scope, pod: k8s.core.v1.PodSpecArgs, image: str) -> k8s.core.v1.PodSpecArgs:
    """The pod with SSSD in it, or as it is where none is configured. Its containers must all be there already.

    A native sidecar of the same image answers at sockets in a directory that all containers share. The others start
    when it does: a daemon that started before would not know the users of running jobs. Only the sidecar sees the
    Secret, which it reads at its start; Pulumi never does.
    """
    sssd = scope.sssd
    if sssd is None:
        return pod
    sidecar = k8s.core.v1.ContainerArgs(
        name="sssd",
        image=image,
        command=program("sssd"),
        restart_policy="Always",
        startup_probe=_answers(),
        # Also in pods whose daemon has no rights: sssd looks users up as root, as Debian sets it up.
        security_context=k8s.core.v1.SecurityContextArgs(run_as_user=0, run_as_group=0, run_as_non_root=False),
        volume_mounts=[mount("sssd", _SECRET_DIR, read_only=True), mount("sss-pipes", PIPES)],
        resources=resources(cpu="5m", memory=sssd.memory),
    )
    for container in (*_items(pod.init_containers), *_items(pod.containers)):
        container.volume_mounts = [*_items(container.volume_mounts), mount("sss-pipes", PIPES)]
        container.env = [*_items(container.env), *env(SSSD_PIPES=PIPES)]
    pod.init_containers = [sidecar, *_items(pod.init_containers)]
    pod.volumes = [
        *_items(pod.volumes),
        secret_volume("sssd", sssd.secret),
        empty_dir("sss-pipes", size_limit=SMALL),
    ]
    return pod


def _items(given: Any) -> list[Any]:
    """A list in a pod of ours; Pulumi's types would also allow one that is not known yet, which none is."""
    return list(given or ())


def _answers() -> k8s.core.v1.ProbeArgs:
    """Up when the socket of libnss-sss is there; within a minute, or the container is started again."""
    there = k8s.core.v1.ExecActionArgs(command=["test", "-S", f"{PIPES}/nss"])
    return k8s.core.v1.ProbeArgs(exec_=there, period_seconds=1, failure_threshold=60)
