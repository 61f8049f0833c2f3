"""Node groups: machines by role and by worker pool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pulumi
import pulumi_nebius as nebius

from components.clouds.base import Role
from components.clouds.nebius.cloud_init import cloud_init
from components.clouds.nebius.filesystems import JAIL_TAG, OF_CONTROLLER
from components.clouds.nebius.placement import (
    drivers_preset,
    role_labels,
    role_taints,
    worker_labels,
    worker_taints,
)
from components.clouds.nebius.repair import worker_repair
from components.clouds.nebius.scope import CloudScope
from components.clouds.nebius.template import GroupArgs, Machines, node_template
from config.machines import MAX_GROUP_SIZE, CountOrPercent, UpdateStrategy
from config.nebius import NebiusCloud, SystemNodes
from config.workers import WorkerPool
from slurm.needs import ROLE_MAX_PODS

ROLE_DRAIN_S = 600
"""Seconds that a machine of our own roles may wait for its pods to leave, when it is replaced."""

GRACE_S = 60
"""Seconds beyond a pool's `drain_timeout`, in which slurmd itself ends after the last job."""


@dataclass(frozen=True, kw_only=True)
class NodeGroupsArgs:
    """What the groups of one cluster have in common."""

    cloud: NebiusCloud
    cluster_id: pulumi.Input[str]
    subnet_id: pulumi.Input[str]
    service_account_id: pulumi.Input[str] | None
    filesystems: Mapping[str, pulumi.Input[str]]
    """Ids by tag."""
    gpu_clusters: Mapping[str, pulumi.Input[str]] = field(default_factory=dict)
    """Ids by pool."""


def create_role_groups(scope: CloudScope, args: NodeGroupsArgs) -> list[nebius.Mk8sV1NodeGroup]:
    """The machines of our own roles, one group each, with the file systems that their pods mount."""
    everywhere = [tag for tag in args.filesystems if tag not in OF_CONTROLLER]
    roles: dict[Role, tuple[SystemNodes, list[str]]] = {
        "system": (args.cloud.system_nodes, _only(args, (JAIL_TAG,))),
        "controller": (args.cloud.controller_nodes, _only(args, OF_CONTROLLER)),
        "login": (args.cloud.login_nodes, everywhere),
    }
    return [
        _create(scope, args, _role_group(scope.name(role), role, nodes, tags)) for role, (nodes, tags) in roles.items()
    ]


def create_worker_groups(
    scope: CloudScope, args: NodeGroupsArgs, pool_name: str, pool: WorkerPool
) -> list[nebius.Mk8sV1NodeGroup]:
    """The machines of a worker pool.

    A group holds 100 machines at most, so a large pool has several, numbered within the pool: they keep their names
    whatever other pools come or go. Each follows the worker pods by itself, so that a change of the size only adds or
    removes groups at the end, and mostly none.
    """
    return [
        _create(scope, args, _worker_group(scope.name(f"{pool_name}-{number}"), args, pool_name, pool))
        for number in range(pool.node_groups)
    ]


def _only(args: NodeGroupsArgs, tags: Sequence[str]) -> list[str]:
    return [tag for tag in tags if tag in args.filesystems]


def _role_group(name: str, role: Role, nodes: SystemNodes, tags: Sequence[str]) -> GroupArgs:
    machines = Machines(
        platform=nodes.platform,
        preset=nodes.preset,
        boot_disk=nodes.boot_disk,
        max_pods=ROLE_MAX_PODS,
        labels=role_labels(role),
        taints=role_taints(role),
        tags=tags,
    )
    return GroupArgs(
        name=name,
        machines=machines,
        min_size=nodes.min_size,
        max_size=nodes.max_size,
        strategy=UpdateStrategy(drain_timeout=ROLE_DRAIN_S),
    )


def _worker_group(name: str, args: NodeGroupsArgs, pool_name: str, pool: WorkerPool) -> GroupArgs:
    machines = Machines(
        platform=str(pool.platform),
        preset=str(pool.preset),
        boot_disk=pool.boot_disk,
        max_pods=pool.max_pods,
        labels=worker_labels(pool_name, pool),
        taints=worker_taints(pool),
        tags=[tag for tag in args.filesystems if tag not in OF_CONTROLLER],
        gpu_cluster=args.gpu_clusters.get(pool_name),
        drivers_preset=drivers_preset(args.cloud, pool),
        preemptible=pool.preemptible,
        reservation=pool.reservation,
        local_disks=pool.local_disks,
    )
    drain = pool.update_strategy.drain_timeout or pool.drain_timeout + GRACE_S
    return GroupArgs(
        name=name,
        machines=machines,
        min_size=max(pool.autoscaling.min_size, _seed(pool)),
        max_size=pool.autoscaling.max_size,
        strategy=pool.update_strategy.model_copy(update={"drain_timeout": drain}),
        auto_repair=worker_repair(),
    )


def _seed(pool: WorkerPool) -> int:
    """Machines that a group must have for the autoscaler to know what its machines offer.

    Of an empty group it knows GPUs, but no InfiniBand devices: workers that ask for these would wait for ever. One
    machine is enough for it to learn from. (Reported of Nebius' autoscaler in 2026; its upstream is the same.)
    """
    return 1 if pool.gpu_cluster is not None and pool.size else 0


def _create(scope: CloudScope, args: NodeGroupsArgs, group: GroupArgs) -> nebius.Mk8sV1NodeGroup:
    kubernetes = args.cloud.kubernetes
    strategy = group.strategy
    return nebius.Mk8sV1NodeGroup(
        group.name,
        name=group.name,
        parent_id=args.cluster_id,
        version=kubernetes.node_version or kubernetes.version,
        autoscaling=nebius.Mk8sV1NodeGroupAutoscalingArgs(
            min_node_count=group.min_size, max_node_count=min(group.max_size, MAX_GROUP_SIZE)
        ),
        strategy=nebius.Mk8sV1NodeGroupStrategyArgs(
            max_unavailable=_unavailable(strategy.max_unavailable),
            max_surge=_surge(strategy.max_surge),
            drain_timeout=f"{strategy.drain_timeout}s",
        ),
        auto_repair=group.auto_repair,
        template=node_template(
            group.machines,
            subnet_id=args.subnet_id,
            service_account_id=args.service_account_id,
            filesystems=args.filesystems,
            user_data=cloud_init(group.machines.tags, args.cloud.ssh_keys),
        ),
        labels=scope.labels,
        opts=scope.options,
    )


def _unavailable(amount: CountOrPercent) -> nebius.Mk8sV1NodeGroupStrategyMaxUnavailableArgs:
    if isinstance(amount, int):
        return nebius.Mk8sV1NodeGroupStrategyMaxUnavailableArgs(count=amount)
    return nebius.Mk8sV1NodeGroupStrategyMaxUnavailableArgs(percent=int(amount.removesuffix("%")))


def _surge(amount: CountOrPercent) -> nebius.Mk8sV1NodeGroupStrategyMaxSurgeArgs:
    if isinstance(amount, int):
        return nebius.Mk8sV1NodeGroupStrategyMaxSurgeArgs(count=amount)
    return nebius.Mk8sV1NodeGroupStrategyMaxSurgeArgs(percent=int(amount.removesuffix("%")))
