"""Which pods go to which machines: labels and taints of the machines, selectors and tolerations of the pods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pulumi

from components.clouds.base import Placement
from config.sections.cloud import Role
from config.sections.workers import Toleration, WorkerPool

ROLE_LABEL = "slurmstack/role"
POOL_LABEL = "slurmstack/pool"
RDMA_LABEL = "slurmstack/rdma"
"""`true` on machines of a GPU cluster, whose InfiniBand devices pods can ask for."""

Taint = tuple[str, str]
"""Key and value; its effect is NoSchedule."""

GPU_TAINT = "nvidia.com/gpu"
"""What NVIDIA's and the vendor's own daemons on GPU machines tolerate."""


def role_labels(role: Role) -> dict[str, str]:
    """Labels of the machines of one of our own roles."""
    return {ROLE_LABEL: role}


def role_taint(role: Role) -> Taint | None:
    """Keeps other pods off the machines of one of our own roles. The cluster's own pods need some without."""
    return None if role == "system" else (ROLE_LABEL, role)


def worker_labels(pool_name: str, pool: WorkerPool) -> dict[str, str]:
    """Labels of a pool's machines."""
    rdma = {RDMA_LABEL: "true"} if pool.gpu_cluster is not None else {}
    return {ROLE_LABEL: "worker", POOL_LABEL: pool_name, **rdma}


def worker_taint(pool: WorkerPool) -> Taint:
    """Keeps all but workers off a pool's machines."""
    gpus = pool.resources.gpus.count
    return (GPU_TAINT, str(gpus)) if gpus else (ROLE_LABEL, "worker")


def role_placement(role: Role) -> Placement:
    """Where the pods of one of our own roles go."""
    taint = role_taint(role)
    return Placement(node_selector=role_labels(role), tolerations=(_tolerates(taint),) if taint else ())


def worker_placement(
    pool_name: str, pool: WorkerPool, devices: Mapping[str, str], *, machines: Sequence[pulumi.Resource]
) -> Placement:
    """Where the workers of a pool go. `devices`: what they ask for besides GPUs, if the machines have it."""
    return Placement(
        node_selector={ROLE_LABEL: "worker", POOL_LABEL: pool_name},
        tolerations=(_tolerates(worker_taint(pool)),),
        devices=devices if pool.gpu_cluster is not None else {},
        machines=tuple(machines),
    )


def _tolerates(taint: Taint) -> Toleration:
    """A toleration of just this taint; of the GPU taint whatever its value, which is only a count."""
    key, value = taint
    return Toleration(key=key, value=None if key == GPU_TAINT else value, effect="NoSchedule")
