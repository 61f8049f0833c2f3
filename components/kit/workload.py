"""What the pods of all roles have in common: volumes, probes, the munge sidecar, and the ways into the jail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pulumi
import pulumi_kubernetes as k8s

from components.clouds.base import Placement
from components.kit.confinement import confine
from components.kit.context import Scope
from config.base import parse_bytes
from config.sections.workers import Toleration
from slurm.names import CONTROLLER_HOST, NODES_SERVICE, SLURMCTLD_PORT
from slurm.rights import CAPABILITIES

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


def mount(name: str, path: str, *, read_only: bool | None = None) -> k8s.core.v1.VolumeMountArgs:
    """A volume in a container."""
    return k8s.core.v1.VolumeMountArgs(name=name, mount_path=path, read_only=read_only)


def empty_dir(name: str, *, medium: str | None = None, size_limit: str | None = None) -> k8s.core.v1.VolumeArgs:
    """A directory that lives as long as the pod."""
    source = k8s.core.v1.EmptyDirVolumeSourceArgs(medium=medium, size_limit=size_limit)
    return k8s.core.v1.VolumeArgs(name=name, empty_dir=source)


def config_volume(name: str, config_map: pulumi.Input[str], *, only: Sequence[str] = ()) -> k8s.core.v1.VolumeArgs:
    """A ConfigMap in a pod, or `only` some of its files."""
    items = [k8s.core.v1.KeyToPathArgs(key=key, path=key) for key in only] or None
    source = k8s.core.v1.ConfigMapVolumeSourceArgs(name=config_map, items=items)
    return k8s.core.v1.VolumeArgs(name=name, config_map=source)


def secret_volume(
    name: str, secret: pulumi.Input[str], *, mode: int = 0o400, files: Mapping[str, str] | None = None
) -> k8s.core.v1.VolumeArgs:
    """A Secret in a pod. `files`: those of its keys that become files, with their names."""
    items = [k8s.core.v1.KeyToPathArgs(key=key, path=path) for key, path in (files or {}).items()] or None
    source = k8s.core.v1.SecretVolumeSourceArgs(secret_name=secret, default_mode=mode, items=items)
    return k8s.core.v1.VolumeArgs(name=name, secret=source)


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
    return [
        secret_volume("munge-key", secret),
        empty_dir("munge", medium="Memory", size_limit="64Mi"),
        empty_dir("munged", medium="Memory", size_limit="64Mi"),
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


def into_jail(container: str, *more: str) -> k8s.core.v1.SecurityContextArgs:
    """What a container needs that mounts something at the jail, and nothing more. `more`: further capabilities.

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


def tcp_probe(port: int, *, period: int) -> k8s.core.v1.ProbeArgs:
    """Ready when the port accepts connections; asked every `period` seconds."""
    return k8s.core.v1.ProbeArgs(
        tcp_socket=k8s.core.v1.TCPSocketActionArgs(port=port), period_seconds=period, failure_threshold=3
    )


def http_probe(path: str, port: int, *, period: int) -> k8s.core.v1.ProbeArgs:
    """Well when the port answers with success; asked every `period` seconds."""
    return k8s.core.v1.ProbeArgs(
        http_get=k8s.core.v1.HTTPGetActionArgs(path=path, port=port), period_seconds=period, failure_threshold=3
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
    stays: bool = False,
    leaves_after: int | None = None,
    annotations: Mapping[str, str] | None = None,
) -> k8s.core.v1.PodTemplateSpecArgs:
    """The pod of a workload, confined, on the machines that the placement names.

    `stays`: whether jobs, sessions or Slurm's service would end with it, or work would be done twice, if an autoscaler
    moved it. `leaves_after`: seconds until it is started elsewhere when its machine is lost; None: Kubernetes' five
    minutes.
    """
    confine(spec, user_namespaces=scope.user_namespaces)
    spec.enable_service_links = False
    component = labels["app.kubernetes.io/component"]
    spec.priority_class_name = spec.priority_class_name or scope.priority_of(component)
    spec.image_pull_secrets = scope.pull_secrets
    spec.node_selector = dict(placement.node_selector) or None
    tolerations = [_toleration(toleration) for toleration in placement.tolerations]
    spec.tolerations = [*tolerations, *([] if leaves_after is None else _stays_on_lost(leaves_after))] or None
    noted = {**(STAY if stays else {}), **(annotations or {})} or None
    metadata = k8s.meta.v1.ObjectMetaArgs(labels=dict(labels), annotations=noted)
    return k8s.core.v1.PodTemplateSpecArgs(metadata=metadata, spec=spec)


def stateful_set(
    name: str,
    metadata: k8s.meta.v1.ObjectMetaArgs,
    selector: k8s.meta.v1.LabelSelectorArgs,
    template: k8s.core.v1.PodTemplateSpecArgs,
    opts: pulumi.ResourceOptions,
    *,
    replicas: int | None = None,
    ordered: int = 1,
    rolled: bool = False,
) -> k8s.apps.v1.StatefulSet:
    """Pods with names and hosts that stay.

    `replicas`: of equal ones, which start together; None: `ordered` ones, each of which waits for the one before.
    `rolled`: a program replaces pods of an older template (images/elastic/rolls.py), and not Kubernetes.
    """
    return k8s.apps.v1.StatefulSet(
        f"{name}-pods",
        metadata=metadata,
        spec=k8s.apps.v1.StatefulSetSpecArgs(
            replicas=ordered if replicas is None else replicas,
            service_name=NODES_SERVICE,
            pod_management_policy=None if replicas is None else "Parallel",
            selector=selector,
            template=template,
            update_strategy=k8s.apps.v1.StatefulSetUpdateStrategyArgs(type="OnDelete") if rolled else None,
        ),
        opts=opts,
    )


def service_port(name: str, port: int, *, node_port: int | None = None) -> k8s.core.v1.ServicePortArgs:
    """A port of a Service, which is the same as the pods'."""
    return k8s.core.v1.ServicePortArgs(name=name, port=port, target_port=port, node_port=node_port)


def disruption_budget(name: str, scope: Scope, component: str, opts: pulumi.ResourceOptions) -> None:
    """Keeps two pods of a component, which have a Service between them, from being evicted at the same time.

    Those that are ill hold no drain up. Only where what makes the pods has a scale:
    docs/decisions/nodes-and-jobs.md, 0072.
    """
    k8s.policy.v1.PodDisruptionBudget(
        f"{name}-budget",
        metadata=scope.metadata(component, component),
        spec=k8s.policy.v1.PodDisruptionBudgetSpecArgs(
            max_unavailable=1,
            unhealthy_pod_eviction_policy="AlwaysAllow",
            selector=scope.label_selector(component),
        ),
        opts=opts,
    )


def spread(selector: k8s.meta.v1.LabelSelectorArgs) -> list[k8s.core.v1.TopologySpreadConstraintArgs]:
    """Such pods go to different machines as far as there are any."""
    constraint = k8s.core.v1.TopologySpreadConstraintArgs(
        max_skew=1,
        topology_key="kubernetes.io/hostname",
        when_unsatisfiable="ScheduleAnyway",
        label_selector=selector,
    )
    return [constraint]


def apart_on_machines(selector: k8s.meta.v1.LabelSelectorArgs) -> k8s.core.v1.AffinityArgs:
    """No two such pods on one machine."""
    term = k8s.core.v1.PodAffinityTermArgs(label_selector=selector, topology_key="kubernetes.io/hostname")
    return k8s.core.v1.AffinityArgs(
        pod_anti_affinity=k8s.core.v1.PodAntiAffinityArgs(required_during_scheduling_ignored_during_execution=[term])
    )


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
