"""Which pods go to which machines: labels and taints of the machines, selectors and tolerations of the pods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pulumi

from components.clouds.base import Placement
from config.nebius.cloud import NebiusCloud, Role
from config.nebius.platforms import nebius_catalogue
from config.sections.machines import Taint
from config.sections.workers import Toleration, WorkerPool

ROLE_LABEL = "slurmstack/role"
POOL_LABEL = "slurmstack/pool"
RDMA_LABEL = "slurmstack/rdma"
"""`true` on machines of a GPU cluster, whose InfiniBand devices pods can ask for."""

GPU_TAINT = "nvidia.com/gpu"
"""What NVIDIA's and the vendor's own daemons on GPU machines tolerate."""


def role_labels(role: Role) -> dict[str, str]:
    """Labels of the machines of one of our own roles."""
    return {ROLE_LABEL: role}


def role_taints(role: Role) -> tuple[Taint, ...]:
    """Taints of the machines of one of our own roles. The cluster's own pods need some without."""
    return () if role == "system" else (Taint(key=ROLE_LABEL, value=role),)


def worker_labels(pool_name: str, pool: WorkerPool) -> dict[str, str]:
    """Labels of a pool's machines."""
    rdma = {RDMA_LABEL: "true"} if pool.gpu_cluster is not None else {}
    return {**pool.labels, ROLE_LABEL: "worker", POOL_LABEL: pool_name, **rdma}


def worker_taints(pool: WorkerPool) -> tuple[Taint, ...]:
    """Taints of a pool's machines: its own, and one that keeps all but workers away."""
    gpus = pool.resources.gpus.count
    own = Taint(key=GPU_TAINT, value=str(gpus)) if gpus else Taint(key=ROLE_LABEL, value="worker")
    return (own, *pool.taints)


def role_placement(role: Role) -> Placement:
    """Where the pods of one of our own roles go."""
    tolerations = tuple(_tolerates(taint) for taint in role_taints(role))
    return Placement(node_selector=role_labels(role), tolerations=tolerations)


def worker_placement(
    pool_name: str, pool: WorkerPool, devices: Mapping[str, str], *, machines: Sequence[pulumi.Resource]
) -> Placement:
    """Where the workers of a pool go. `devices`: what they ask for besides GPUs, if the machines have it."""
    return Placement(
        node_selector={ROLE_LABEL: "worker", POOL_LABEL: pool_name},
        tolerations=tuple(_tolerates(taint) for taint in worker_taints(pool)),
        devices=devices if pool.gpu_cluster is not None else {},
        machines=tuple(machines),
    )


def drivers_preset(cloud: NebiusCloud, pool: WorkerPool) -> str | None:
    """GPU drivers that the machines' image has; None where it has none, or the operators install them."""
    if cloud.gpu_stack == "operators" or not pool.resources.gpus.count:
        return None
    return pool.drivers_preset or nebius_catalogue().drivers[cloud.kubernetes.version][-1]


def _tolerates(taint: Taint) -> Toleration:
    """A toleration of just this taint; of the GPU taint whatever its value, which is only a count."""
    value = None if taint.key == GPU_TAINT else taint.value
    return Toleration(key=taint.key, value=value, effect=taint.effect)
