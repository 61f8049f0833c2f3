"""What the pods of all roles have in common: labels, the munge sidecar, and the ways into the jail."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from components.clouds.base import Placement
from components.confinement import confine
from config.base import parse_bytes
from config.sssd import Sssd
from config.workers import Toleration
from slurm.names import CONTROLLER_HOST, JAIL_DIR, NODES_SERVICE, SLURMCTLD_PORT
from slurm.rights import CAPABILITIES

LIBEXEC = "/usr/libexec/slurmstack"
"""Where our programs lie in the images."""

WITHOUT_SET_UP = ("/usr/bin/setpriv", "--inh-caps=-all", "--bounding-set=-sys_admin")
"""Before what kubelet starts in a container that leads into the jail: it would have all of the container's
capabilities, and what it reads there was written by a daemon that has not."""

CONTROLLER_ADDRESS = f"{CONTROLLER_HOST}:{SLURMCTLD_PORT}"

SLURM_NODE_LABEL = "slurmstack/slurm-node"
"""On workers and login nodes: pods that have a DNS name in the `nodes` Service and talk to each other freely."""


def selector_labels(cluster: str, component: str) -> dict[str, str]:
    """The labels that select the pods of one component of one cluster."""
    return {
        "app.kubernetes.io/name": "slurm",
        "app.kubernetes.io/instance": cluster,
        "app.kubernetes.io/component": component,
    }


def recommended_labels(cluster: str, component: str) -> dict[str, str]:
    """The labels that every object carries."""
    return selector_labels(cluster, component) | {"app.kubernetes.io/part-of": "slurmstack"}


@dataclass(frozen=True, kw_only=True)
class Scope:
    """Where the objects of one cluster live, and what they are labelled with."""

    name: str
    """Name of the namespace, which is also the name of the cluster in labels."""
    namespace: pulumi.Input[str]
    """The same name as an output of the Namespace, so that each object depends on it."""
    cluster_domain: str
    pull_secret: str | None = None
    sssd: Sssd | None = None
    user_namespaces: bool = False

    def labels(self, component: str, **more: str) -> dict[str, str]:
        """The labels that Kubernetes recommends, for one component of this cluster."""
        return self.selector(component, **more) | recommended_labels(self.name, component)

    def selector(self, component: str, **more: str) -> dict[str, str]:
        """The labels that select a component's pods. They can never change: a StatefulSet's selector is immutable."""
        return selector_labels(self.name, component) | {f"slurmstack/{key}": value for key, value in more.items()}

    def metadata(self, name: pulumi.Input[str], component: str, **more: str) -> k8s.meta.v1.ObjectMetaArgs:
        """Name, namespace and labels of an object."""
        return k8s.meta.v1.ObjectMetaArgs(name=name, namespace=self.namespace, labels=self.labels(component, **more))

    @property
    def pull_secrets(self) -> list[k8s.core.v1.LocalObjectReferenceArgs] | None:
        """The pull secret as a pod has it."""
        return [k8s.core.v1.LocalObjectReferenceArgs(name=self.pull_secret)] if self.pull_secret else None

    @property
    def node_dns(self) -> k8s.core.v1.PodDNSConfigArgs:
        """Lets a bare node name such as `default-0` resolve in a pod."""
        return k8s.core.v1.PodDNSConfigArgs(searches=[f"{NODES_SERVICE}.{self.name}.svc.{self.cluster_domain}"])


def children_of(component: pulumi.ComponentResource, opts: pulumi.ResourceOptions | None) -> pulumi.ResourceOptions:
    """Options for a component's children: they go away with whatever the component goes away with."""
    return pulumi.ResourceOptions(parent=component, deleted_with=opts.deleted_with if opts else None)


_START_SECONDS = 7 * 86_400
"""Until kubelet starts a container again that is not ready: what it waits for, a jail being filled, may take long."""

STARTING = "30m"
"""For an update to wait until a workload is ready. Its image is pulled first, and on a slow line that takes longer than
the provider's own ten minutes."""

FILLING = "4h"
"""For the jail to be filled, and for what waits for that. Network file systems write its 30,000 files slowly."""


def waits(limit: str) -> pulumi.ResourceOptions:
    """Options of an object that an update waits for, so long at most: `30m`."""
    return pulumi.ResourceOptions(custom_timeouts=pulumi.CustomTimeouts(create=limit, update=limit))


def apart(opts: pulumi.ResourceOptions | None) -> pulumi.ResourceOptions | None:
    """Options of a component with children that have to be deleted by themselves: children inherit `deleted_with`.

    Those that do go away with the namespace get it from `children_of`, as ever.
    """
    own = copy.copy(opts)
    if own is not None:
        own.deleted_with = None
    return own


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


def mount(name: str, path: str, *, read_only: bool | None = None) -> k8s.core.v1.VolumeMountArgs:
    """A volume in a container."""
    return k8s.core.v1.VolumeMountArgs(name=name, mount_path=path, read_only=read_only)


def empty_dir(name: str, *, medium: str | None = None, size_limit: str | None = None) -> k8s.core.v1.VolumeArgs:
    """A directory that lives as long as the pod."""
    source = k8s.core.v1.EmptyDirVolumeSourceArgs(medium=medium, size_limit=size_limit)
    return k8s.core.v1.VolumeArgs(name=name, empty_dir=source)


def claim_volume(name: str, claim: pulumi.Input[str]) -> k8s.core.v1.VolumeArgs:
    """A volume claim in a pod."""
    source = k8s.core.v1.PersistentVolumeClaimVolumeSourceArgs(claim_name=claim)
    return k8s.core.v1.VolumeArgs(name=name, persistent_volume_claim=source)


def _attests() -> k8s.core.v1.ProbeArgs:
    """Whether munged answers: every command of Slurm waits for one that hangs, and nothing says so.

    Not for that of the users, which they can hold up.
    """
    attest = ["sh", "-c", "munge -n | unmunge >/dev/null"]
    return k8s.core.v1.ProbeArgs(
        exec_=k8s.core.v1.ExecActionArgs(command=attest), period_seconds=30, timeout_seconds=10, failure_threshold=4
    )


def munge_sidecar(image: str, *, for_jail: bool = False) -> k8s.core.v1.ContainerArgs:
    """Munged as a native sidecar: it starts before the daemons that need it and ends after them.

    `for_jail`: with a second one for the users of the pod (images/common/munged.py).
    """
    return k8s.core.v1.ContainerArgs(
        name="munged",
        image=image,
        command=program("munged"),
        env=env(FOR_JAIL="yes") if for_jail else None,
        restart_policy="Always",
        liveness_probe=_attests(),
        volume_mounts=[
            mount("munge-key", "/secrets/munge", read_only=True),
            mount("munge", "/run/munge"),
            mount("munged", "/run/munged"),
        ],
        resources=resources(cpu="5m", memory="16Mi", memory_limit="64Mi"),
    )


def munge_volumes(secret: pulumi.Input[str]) -> list[k8s.core.v1.VolumeArgs]:
    """The key and its copy, which only the sidecar mounts, and the directory with the socket for all containers."""
    source = k8s.core.v1.SecretVolumeSourceArgs(secret_name=secret, default_mode=0o400)
    return [
        k8s.core.v1.VolumeArgs(name="munge-key", secret=source),
        empty_dir("munge", medium="Memory", size_limit="64Mi"),
        empty_dir("munged", medium="Memory", size_limit="64Mi"),
    ]


def munge_mount() -> k8s.core.v1.VolumeMountArgs:
    """The socket of the munge sidecar."""
    return mount("munge", "/run/munge")


def jwt_volume(secret: pulumi.Input[str]) -> k8s.core.v1.VolumeArgs:
    """The key of the tokens, for slurmctld and slurmdbd."""
    source = k8s.core.v1.SecretVolumeSourceArgs(secret_name=secret, default_mode=0o400)
    return k8s.core.v1.VolumeArgs(name="jwt-key", secret=source)


def jwt_mount() -> k8s.core.v1.VolumeMountArgs:
    """Where images/common/jwt_key.py looks for it."""
    return mount("jwt-key", "/secrets/jwt", read_only=True)


def jail_mount() -> k8s.core.v1.VolumeMountArgs:
    """The shared root file system."""
    return mount("jail", JAIL_DIR)


def into_jail(container: str, *more: str) -> k8s.core.v1.SecurityContextArgs:
    """What a container needs that leads users into the jail, and nothing more. `more`: further capabilities.

    AppArmor's default profile forbids mounts to containers, so it is off for this one.
    """
    return k8s.core.v1.SecurityContextArgs(
        capabilities=k8s.core.v1.CapabilitiesArgs(drop=["ALL"], add=[*CAPABILITIES[container], *more]),
        app_armor_profile=k8s.core.v1.AppArmorProfileArgs(type="Unconfined"),
    )


SMALL = "1Gi"
"""Size of a directory for sockets, process ids and generated files, which take some KiB."""

DISK = "4Gi"
"""What a daemon may take of its machine's disk: its log, of which kubelet keeps 50 MiB by default, and what it writes
beside its volumes, which is next to nothing."""

_DISK_REQUEST = "64Mi"


def disk_for(tmp: str) -> str:
    """What a container with a `/tmp` of this size may take of its machine's disk in all."""
    return str(parse_bytes(tmp) + parse_bytes(DISK))


def resources(
    *,
    cpu: str,
    memory: str,
    memory_limit: str | None = None,
    disk: str = DISK,
    gpus: int = 0,
    devices: Mapping[str, str] | None = None,
) -> k8s.core.v1.ResourceRequirementsArgs:
    """Requests and limits. CPU has no limit: throttling a daemon helps nobody, and jobs are bound by Slurm's count.

    `disk`: of the machine, for logs and directories that live as long as the pod. Kubernetes ends a pod that takes
    more; without a bound it would end others of the machine, too, the controller or the database.
    `devices`: further extended resources; Kubernetes wants these in equal number in both.
    """
    limits = {**({"memory": memory_limit} if memory_limit else {}), "ephemeral-storage": disk}
    extended = ({"nvidia.com/gpu": str(gpus)} if gpus else {}) | dict(devices or {})
    return k8s.core.v1.ResourceRequirementsArgs(
        requests={"cpu": cpu, "memory": memory, "ephemeral-storage": _DISK_REQUEST, **extended},
        limits={**limits, **extended},
    )


def tcp_probe(port: int, *, period: int) -> k8s.core.v1.ProbeArgs:
    """Ready when the port accepts connections; asked every `period` seconds."""
    return k8s.core.v1.ProbeArgs(
        tcp_socket=k8s.core.v1.TCPSocketActionArgs(port=port), period_seconds=period, failure_threshold=3
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


def pod_template(
    scope: Scope,
    labels: Mapping[str, str],
    placement: Placement,
    spec: k8s.core.v1.PodSpecArgs,
    *,
    leaves_after: int | None = None,
) -> k8s.core.v1.PodTemplateSpecArgs:
    """The pod of a workload, confined, on the machines that the placement names.

    `leaves_after`: seconds until it is started elsewhere when its machine is lost; None: Kubernetes' five minutes.
    """
    confine(spec, user_namespaces=scope.user_namespaces)
    spec.node_selector = dict(placement.node_selector) or None
    tolerations = [_toleration(toleration) for toleration in placement.tolerations]
    spec.tolerations = [*tolerations, *([] if leaves_after is None else _stays_on_lost(leaves_after))] or None
    metadata = k8s.meta.v1.ObjectMetaArgs(labels=dict(labels), annotations=dict(placement.annotations) or None)
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
