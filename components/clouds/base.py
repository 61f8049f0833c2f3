"""What every cloud gives a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pulumi
import pulumi_kubernetes as k8s

from config.sections.cloud import Role
from config.sections.workers import Toleration, WorkerPool


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Which machines a pod goes to, and what it finds there."""

    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()
    devices: Mapping[str, str] = field(default_factory=dict)
    """Extended resources of each pod besides its GPUs, for example `rdma/ib: "1"`."""
    machines: tuple[pulumi.Resource, ...] = ()
    """Resources that make the machines. A workload that depends on them is removed before they are, so that its pods
    end in order, and not with the machine under them."""


@dataclass(frozen=True, kw_only=True)
class StaticVolumeArgs:
    """A volume that a cloud may offer ready-made for one claim."""

    namespace: str
    claim: str
    size: str
    """Capacity as a Kubernetes quantity."""
    access_mode: str
    """`ReadWriteMany` or `ReadWriteOnce`."""
    protect: bool


class CloudResources:
    """What a cluster needs of the cloud that it runs on, as most Kubernetes clusters that are there give it."""

    provider: k8s.Provider
    """That every Kubernetes object is made with."""
    login_keys: tuple[str, ...] = ()
    """SSH public keys of the machine's owner, which every declared user accepts besides their own."""
    login_annotations: Mapping[str, pulumi.Input[str]] = {}
    """Of the login Service, for the cloud's load balancer."""
    volume_filesystem: str | None = None
    """Type of the file system that static volumes are mounted from (`virtiofs`); None: whatever it is.

    Without the mount, a pod would write to the machine's own disk."""
    exports: Mapping[str, pulumi.Input[str]] = {}
    """Outputs of the stack, without secrets."""

    def static_volume(
        self, args: StaticVolumeArgs, opts: pulumi.ResourceOptions
    ) -> k8s.core.v1.PersistentVolume | None:
        """A volume for one claim; None where claims are served by a storage class."""
        del args, opts
        return None

    def worker_cpu_request(self, cpus: int) -> str:
        """CPU that a worker with so many CPUs asks Kubernetes for: all of them, it has them to itself."""
        return str(cpus)

    def placement(self, role: Role) -> Placement:
        """Where the pods of a role go: anywhere."""
        del role
        return Placement()

    def worker_placement(self, pool_name: str, pool: WorkerPool) -> Placement:
        """Where the workers of a pool go, besides what the pool itself says."""
        del pool_name, pool
        return Placement()


def kubernetes_provider(
    kubeconfig: pulumi.Input[str] | None,
    *,
    identifier: str,
    context: str | None = None,
    after: Sequence[pulumi.Resource] = (),
) -> k8s.Provider:
    """The provider that every Kubernetes object is made with.

    `identifier`: what distinguishes the cluster from one that takes its place. It is known at preview: else a
    kubeconfig that changes, or is not known yet, would replace every object. `after`: what the objects need.
    """
    return k8s.Provider(
        "kubernetes",
        kubeconfig=kubeconfig,
        context=context,
        cluster_identifier=identifier,
        # Slurm re-reads its configuration in place; maps whose change must roll pods carry a hash in their names.
        enable_config_map_mutable=True,
        enable_secret_mutable=True,
        # What was changed by hand comes back, as with kubectl. Without this it would end each preview and update
        # with a conflict, even `kubectl scale`.
        enable_patch_force=True,
        opts=pulumi.ResourceOptions(depends_on=list(after)),
    )


def host_volume(
    args: StaticVolumeArgs, path: str, opts: pulumi.ResourceOptions, *, kind: str
) -> k8s.core.v1.PersistentVolume:
    """A directory of the machines, reserved for one claim. `kind`: as a `hostPath` has it."""
    name = f"{args.namespace}-{args.claim}"
    return k8s.core.v1.PersistentVolume(
        name,
        metadata=k8s.meta.v1.ObjectMetaArgs(name=name, labels={"app.kubernetes.io/part-of": "slurmstack"}),
        spec=k8s.core.v1.PersistentVolumeSpecArgs(
            capacity={"storage": args.size},
            access_modes=[args.access_mode],
            persistent_volume_reclaim_policy="Retain",
            storage_class_name="",
            claim_ref=k8s.core.v1.ObjectReferenceArgs(namespace=args.namespace, name=args.claim),
            host_path=k8s.core.v1.HostPathVolumeSourceArgs(path=path, type=kind),
        ),
        opts=opts.merge(pulumi.ResourceOptions(protect=args.protect)),
    )
