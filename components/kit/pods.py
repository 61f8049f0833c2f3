"""What pods of all roles have in common: probes, munge and SSSD, the ways into the jail, what none of them may do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from components.clouds.base import Placement
from components.kit.context import Scope
from components.kit.volumes import empty_dir, memory_dir, mount, secret_volume
from config.base import parse_bytes
from config.sections.users import Sssd
from config.sections.workers import Toleration
from slurm.names import CONTROLLER_HOST, SLURMCTLD_PORT
from slurm.rights import CAPABILITIES, TEMPORARY

LIBEXEC = "/usr/libexec/slurmstack"
"""Where our programs lie in the images."""

CONTROLLER_ADDRESS = f"{CONTROLLER_HOST}:{SLURMCTLD_PORT}"

SLURM_NODE_LABEL = "slurmstack/slurm-node"
"""On workers and login nodes: pods that have a DNS name in the `nodes` Service and talk to each other freely."""

STAY = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "karpenter.sh/do-not-disrupt": "true"}
"""Annotations of pods whose machine no autoscaler may take away, however idle it looks to it: Cluster Autoscaler, from
which the clouds' own ones are made, and Karpenter."""

STAY_UNTIL_NOTICE = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
"""Of pods that are to be told when the cloud takes their machine back: Karpenter evicts no pod with its annotation then
either, and the machine would go without a word (`IsEvictable`, pkg/utils/pod/scheduling.go)."""

SMALL = "1Gi"
"""Size of a directory for sockets, process ids and generated files, which take some KiB."""

DISK = "4Gi"
"""What a daemon may take of its machine's disk: its log, of which kubelet keeps 50 MiB by default, and what it writes
beside its volumes, which is next to nothing."""

_DISK_REQUEST = "64Mi"

SEALED_LATER = {
    "sshd": "binds the pod's view into the jail first; its own start makes the root read-only then",
    "worker-sshd": "as sshd",
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

_PIPES = "/var/lib/sss/pipes"
"""Directory of the sockets at which libnss-sss, pam_sss and sss_ssh_authorizedkeys ask."""

_START_SECONDS = 7 * 86_400
"""Until kubelet starts a container again that is not ready: what it waits for, a jail being filled, may take long."""


def program(name: str, *arguments: str) -> list[str]:
    """Command line of one of our programs, under an init that reaps.

    slurmd does not wait for the steps that end under it: as PID 1 it left a zombie for each of them (measured). tini
    also passes SIGTERM on to daemons that, as PID 1, would never see it. slurmd and sshd put it before themselves when
    they have set the pod up.
    """
    return ["/usr/bin/tini", "--", f"{LIBEXEC}/{name}", *arguments]


def env(**values: str) -> list[k8s.core.v1.EnvVarArgs]:
    """Environment variables, for values that are no secrets."""
    return [k8s.core.v1.EnvVarArgs(name=name, value=value) for name, value in values.items()]


def field_env(name: str, field: str) -> k8s.core.v1.EnvVarArgs:
    """An environment variable with a field of the pod itself."""
    source = k8s.core.v1.EnvVarSourceArgs(field_ref=k8s.core.v1.ObjectFieldSelectorArgs(field_path=field))
    return k8s.core.v1.EnvVarArgs(name=name, value_from=source)


# Probes and resources


def tcp_probe(port: int, *, period: int) -> k8s.core.v1.ProbeArgs:
    """Ready when the port accepts connections; asked every `period` seconds."""
    return k8s.core.v1.ProbeArgs(
        tcp_socket=k8s.core.v1.TCPSocketActionArgs(port=port), period_seconds=period, failure_threshold=3
    )


def http_probe(
    path: str, port: int, *, period: int, timeout: int | None = None, failures: int = 3, scheme: str | None = None
) -> k8s.core.v1.ProbeArgs:
    """Well when the port answers with success; asked every `period` seconds."""
    return k8s.core.v1.ProbeArgs(
        http_get=k8s.core.v1.HTTPGetActionArgs(path=path, port=port, scheme=scheme),
        period_seconds=period,
        timeout_seconds=timeout,
        failure_threshold=failures,
    )


def exec_probe(*command: str, period: int, timeout: int | None = None, failures: int = 3) -> k8s.core.v1.ProbeArgs:
    """Well when the command succeeds in the container; asked every `period` seconds."""
    return k8s.core.v1.ProbeArgs(
        exec_=k8s.core.v1.ExecActionArgs(command=list(command)),
        period_seconds=period,
        timeout_seconds=timeout,
        failure_threshold=failures,
    )


def starting(probe: k8s.core.v1.ProbeArgs) -> k8s.core.v1.ProbeArgs:
    """A readiness probe as a startup probe: asked each second until it succeeds for the first time.

    With a readiness probe alone kubelet asks at the start, when nothing is ready, and again only after the probe's
    period: database, slurmdbd, slurmctld and sshd, each of which waits for the one before, would each seem to start 5
    or 10 s later than they do.
    """
    return k8s.core.v1.ProbeArgs(
        exec_=probe.exec_,
        tcp_socket=probe.tcp_socket,
        http_get=probe.http_get,
        timeout_seconds=probe.timeout_seconds,
        period_seconds=1,
        failure_threshold=_START_SECONDS,
    )


def serving(name: str, port: int, ready: k8s.core.v1.ProbeArgs) -> dict[str, Any]:
    """What a container has that serves at a port: the port, and the probe of its start and of its readiness."""
    return {
        "ports": [k8s.core.v1.ContainerPortArgs(name=name, container_port=port)],
        "readiness_probe": ready,
        "startup_probe": starting(ready),
    }


def scraped(port: int) -> dict[str, str]:
    """Annotations by which many a Prometheus finds what to read.

    A pod names one path with them; slurmctld has four, so it has none.
    """
    return {"prometheus.io/scrape": "true", "prometheus.io/port": str(port), "prometheus.io/path": "/metrics"}


def disk_for(tmp: str) -> str:
    """What a container with a `/tmp` of this size may take of its machine's disk in all."""
    return str(parse_bytes(tmp) + parse_bytes(DISK))


def resources(
    *,
    cpu: str,
    memory: str,
    memory_limit: str | None = None,
    disk: str = DISK,
    devices: Mapping[str, str] | None = None,
) -> k8s.core.v1.ResourceRequirementsArgs:
    """Requests and limits. CPU has no limit: throttling a daemon helps nobody, and jobs are bound by Slurm's count.

    `disk`: of the machine, for logs and directories that live as long as the pod. Kubernetes ends a pod that takes
    more; without a bound it would end others of the machine, too, the controller or the database.
    `devices`: extended resources, GPUs too; Kubernetes wants these in equal number in both.
    """
    limits = {**({"memory": memory_limit} if memory_limit else {}), "ephemeral-storage": disk}
    extended = dict(devices or {})
    return k8s.core.v1.ResourceRequirementsArgs(
        requests={"cpu": cpu, "memory": memory, "ephemeral-storage": _DISK_REQUEST, **extended},
        limits={**limits, **extended},
    )


# What daemons of Slurm need beside them


def munge_sidecar(image: str) -> k8s.core.v1.ContainerArgs:
    """Munged as a native sidecar: it starts before the daemons that need it and ends after them."""
    return k8s.core.v1.ContainerArgs(
        name="munged",
        image=image,
        command=program("munged"),
        restart_policy="Always",
        # Every command of Slurm waits for a munged that hangs, and nothing says so.
        liveness_probe=exec_probe("sh", "-c", "munge -n | unmunge >/dev/null", period=30, timeout=10, failures=4),
        volume_mounts=[
            mount("munge-key", "/secrets/munge", read_only=True),
            mount("munge", "/run/munge"),
            mount("munged", "/run/munged"),
        ],
        resources=resources(cpu="5m", memory="16Mi", memory_limit="64Mi"),
    )


def munge_volumes(secret: pulumi.Input[str]) -> list[k8s.core.v1.VolumeArgs]:
    """The key and its copy, which only the sidecar mounts, and the directory with the socket for all containers."""
    return [
        secret_volume("munge-key", secret),
        memory_dir("munge"),
        memory_dir("munged"),
    ]


def munge_mount() -> k8s.core.v1.VolumeMountArgs:
    """The socket of the munge sidecar."""
    return mount("munge", "/run/munge")


def jwt_volume(secret: pulumi.Input[str]) -> k8s.core.v1.VolumeArgs:
    """The key of the tokens, for slurmctld and slurmdbd."""
    return secret_volume("jwt-key", secret)


def jwt_mount() -> k8s.core.v1.VolumeMountArgs:
    """Where images/common/files.py looks for it."""
    return mount("jwt-key", "/secrets/jwt", read_only=True)


# Rights


def into_jail(container: str, *more: str) -> k8s.core.v1.SecurityContextArgs:
    """What a container needs that mounts something at the jail, and nothing more. `more`: further capabilities.

    AppArmor's default profile forbids mounts to containers, so it is off for this one.
    """
    return k8s.core.v1.SecurityContextArgs(
        capabilities=k8s.core.v1.CapabilitiesArgs(drop=["ALL"], add=[*CAPABILITIES[container], *more]),
        app_armor_profile=k8s.core.v1.AppArmorProfileArgs(type="Unconfined"),
    )


def runs_as(uid: int) -> k8s.core.v1.SecurityContextArgs:
    """A user without any right, by its number."""
    return k8s.core.v1.SecurityContextArgs(run_as_user=uid, run_as_group=uid, run_as_non_root=True)


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
    return mount("token", _TOKEN_DIRECTORY, read_only=True)


def pod_template(
    scope: Scope,
    component: str,
    placement: Placement,
    spec: k8s.core.v1.PodSpecArgs,
    *,
    stays: bool = False,
    knows_users: bool = False,
    leaves_after: int | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> k8s.core.v1.PodTemplateSpecArgs:
    """The pod of a workload, confined, on the machines that the placement names.

    `stays`: whether jobs, sessions or Slurm's service would end with it, or work would be done twice, if an autoscaler
    moved it. `knows_users`: with SSSD, where the stack file has it. `leaves_after`: seconds until it is started
    elsewhere when its machine is lost; None: Kubernetes' five minutes. `labels`: besides the component's.
    """
    if knows_users and scope.config.sssd is not None:
        _add_sssd(spec, scope.config.sssd)
    _confine(spec, user_namespaces=scope.config.cluster.user_namespaces)
    spec.enable_service_links = False
    spec.priority_class_name = spec.priority_class_name or scope.priority_of(component)
    spec.image_pull_secrets = scope.pull_secrets
    spec.node_selector = dict(placement.node_selector) or None
    tolerations = [_toleration(toleration) for toleration in placement.tolerations]
    spec.tolerations = [*tolerations, *([] if leaves_after is None else _stays_on_lost(leaves_after))] or None
    noted = {**(STAY if stays else {}), **(annotations or {})} or None
    metadata = k8s.meta.v1.ObjectMetaArgs(labels={**scope.labels(component), **(labels or {})}, annotations=noted)
    return k8s.core.v1.PodTemplateSpecArgs(metadata=metadata, spec=spec)


def _stays_on_lost(seconds: int) -> list[k8s.core.v1.TolerationArgs]:
    return [
        k8s.core.v1.TolerationArgs(
            key=f"node.kubernetes.io/{state}", operator="Exists", effect="NoExecute", toleration_seconds=seconds
        )
        for state in ("not-ready", "unreachable")
    ]


def _toleration(toleration: Toleration) -> k8s.core.v1.TolerationArgs:
    return k8s.core.v1.TolerationArgs(
        key=toleration.key,
        operator="Exists" if toleration.value is None else "Equal",
        value=toleration.value,
        effect=toleration.effect,
    )


def _add_sssd(pod: k8s.core.v1.PodSpecArgs, sssd: Sssd) -> None:
    """SSSD, for daemons that have to know users from LDAP, Active Directory or FreeIPA.

    A native sidecar of the same image answers at sockets in a directory that all containers share. The others start
    when it does: a daemon that started before would not know the users of running jobs. Only the sidecar sees the
    Secret, which it reads at its start; Pulumi never does.
    """
    containers = [*_items(pod.init_containers), *_items(pod.containers)]
    sidecar = k8s.core.v1.ContainerArgs(
        name="sssd",
        image=containers[0].image,
        command=program("sssd"),
        restart_policy="Always",
        # Within a minute, or the container is started again.
        startup_probe=exec_probe("test", "-S", f"{_PIPES}/nss", period=1, failures=60),
        # Also in pods whose daemon has no rights: sssd looks users up as root, as Debian sets it up.
        security_context=k8s.core.v1.SecurityContextArgs(run_as_user=0, run_as_group=0, run_as_non_root=False),
        volume_mounts=[mount("sssd", "/secrets/sssd", read_only=True), mount("sss-pipes", _PIPES)],
        resources=resources(cpu="5m", memory="64Mi"),
    )
    for container in containers:
        container.volume_mounts = [*_items(container.volume_mounts), mount("sss-pipes", _PIPES)]
        container.env = [*_items(container.env), *env(SSSD_PIPES=_PIPES)]
    pod.init_containers = [sidecar, *_items(pod.init_containers)]
    pod.volumes = [*_items(pod.volumes), secret_volume("sssd", sssd.secret), empty_dir("sss-pipes", size_limit=SMALL)]


def _confine(spec: k8s.core.v1.PodSpecArgs, *, user_namespaces: bool) -> None:
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
        spec.volumes = [*_items(spec.volumes), empty_dir("temporary", size_limit=_TEMPORARY_SIZE)]


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
        container.volume_mounts = [*_items(container.volume_mounts), mount("temporary", "/tmp")]


def _items(given: Any) -> list[Any]:
    """A list in a pod of ours; Pulumi's types would also allow one that is not known yet, which none is."""
    return list(given or ())
