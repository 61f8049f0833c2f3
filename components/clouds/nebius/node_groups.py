"""Node groups: machines by role and by worker pool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pulumi
import pulumi_nebius as nebius

from components.clouds.nebius.cloud_init import cloud_init
from components.clouds.nebius.filesystems import OF_CONTROLLER, OF_JAIL
from components.clouds.nebius.placement import (
    drivers_preset,
    role_labels,
    role_taints,
    worker_labels,
    worker_taints,
)
from components.clouds.nebius.repair import worker_repair
from components.clouds.nebius.scope import CloudScope
from components.clouds.nebius.template import node_template
from config.nebius.cloud import NebiusCloud, Role, SystemNodes
from config.nebius.needs import ROLE_MAX_PODS
from config.sections.machines import Autoscaling, CountOrPercent, Machines, UpdateStrategy
from config.sections.workers import WorkerPool

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
    saves_jail: bool = False
    """Whether backups are made, which happens beside slurmctld."""


def create_role_groups(scope: CloudScope, args: NodeGroupsArgs) -> list[nebius.Mk8sV1NodeGroup]:
    """The machines of our own roles, one group each, with the file systems that their pods mount."""
    of_controller = (*OF_CONTROLLER, *(OF_JAIL if args.saves_jail else []))
    mounted = {"system": OF_JAIL, "controller": of_controller, "login": _of_users(args)}
    return [
        _create(scope, args, scope.name(role), _role_machines(role, nodes), _only(args, mounted[role]))
        for role, nodes in args.cloud.roles.items()
    ]


def create_worker_groups(
    scope: CloudScope, args: NodeGroupsArgs, pool_name: str, pool: WorkerPool
) -> list[nebius.Mk8sV1NodeGroup]:
    """The machines of a worker pool.

    A group holds 100 machines at most, so a large pool has several, numbered within the pool: they keep their names
    whatever other pools come or go. Each follows the worker pods by itself, so that a change of the size only adds or
    removes groups at the end, and mostly none.
    """
    machines = _worker_machines(args.cloud, pool_name, pool)
    gpu_cluster = args.gpu_clusters.get(pool_name)
    return [
        _create(
            scope,
            args,
            scope.name(f"{pool_name}-{number}"),
            machines,
            _of_users(args),
            gpu_cluster=gpu_cluster,
            auto_repair=worker_repair(),
        )
        for number in range(pool.node_groups)
    ]


def _of_users(args: NodeGroupsArgs) -> list[str]:
    return [tag for tag in args.filesystems if tag not in OF_CONTROLLER]


def _only(args: NodeGroupsArgs, tags: Sequence[str]) -> list[str]:
    return [tag for tag in tags if tag in args.filesystems]


def _role_machines(role: Role, nodes: SystemNodes) -> Machines:
    """As a pool would ask for them."""
    return Machines(
        platform=nodes.platform,
        preset=nodes.preset,
        boot_disk=nodes.boot_disk,
        max_pods=ROLE_MAX_PODS,
        labels=role_labels(role),
        taints=role_taints(role),
        autoscaling=Autoscaling(min_size=nodes.min_size, max_size=nodes.max_size),
        update_strategy=UpdateStrategy(drain_timeout=ROLE_DRAIN_S),
    )


def _worker_machines(cloud: NebiusCloud, pool_name: str, pool: WorkerPool) -> Machines:
    """The pool with what follows from it, and from the cloud."""
    drain = pool.update_strategy.drain_timeout or pool.drain_timeout + GRACE_S
    more = {
        "labels": worker_labels(pool_name, pool),
        "taints": worker_taints(pool),
        "drivers_preset": drivers_preset(cloud, pool),
        "autoscaling": pool.autoscaling.model_copy(update={"min_size": pool.kept_in_group}),
        # The service's own defaults change.
        "update_strategy": pool.update_strategy.model_copy(update={"drain_timeout": drain}),
    }
    return pool.model_copy(update=more)


def _create(
    scope: CloudScope,
    args: NodeGroupsArgs,
    name: str,
    machines: Machines,
    tags: Sequence[str],
    *,
    gpu_cluster: pulumi.Input[str] | None = None,
    auto_repair: nebius.Mk8sV1NodeGroupAutoRepairArgs | None = None,
) -> nebius.Mk8sV1NodeGroup:
    """`tags`: file systems that the machines mount. `auto_repair`: None for the service's own rules."""
    kubernetes = args.cloud.kubernetes
    strategy, bounds = machines.update_strategy, machines.autoscaling
    return nebius.Mk8sV1NodeGroup(
        name,
        name=name,
        parent_id=args.cluster_id,
        version=kubernetes.node_version or kubernetes.version,
        autoscaling={"min_node_count": bounds.min_size, "max_node_count": bounds.max_size},
        strategy=nebius.Mk8sV1NodeGroupStrategyArgs(
            max_unavailable=nebius.Mk8sV1NodeGroupStrategyMaxUnavailableArgs(**_amount(strategy.max_unavailable)),
            max_surge=nebius.Mk8sV1NodeGroupStrategyMaxSurgeArgs(**_amount(strategy.max_surge)),
            drain_timeout=f"{strategy.drain_timeout}s",
        ),
        auto_repair=auto_repair,
        template=node_template(
            machines,
            subnet_id=args.subnet_id,
            service_account_id=args.service_account_id,
            gpu_cluster=gpu_cluster,
            filesystems={tag: args.filesystems[tag] for tag in tags},
            user_data=cloud_init(tags, args.cloud.ssh_keys),
        ),
        labels=scope.labels,
        opts=scope.options,
    )


def _amount(amount: CountOrPercent) -> dict[str, int]:
    """A number or a percentage, as the service has it."""
    return {"count": amount} if isinstance(amount, int) else {"percent": int(amount.removesuffix("%"))}
