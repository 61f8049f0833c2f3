"""GPUs in Slurm's words and in those of Kubernetes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from config.sections.machines import Gpus, dotted
from config.sections.workers import WorkerPool

_RESOURCES = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu"}
"""Vendor -> what its device plugin offers to pods."""


def gres(pool: WorkerPool) -> list[dict[str, Any]]:
    """What a node has, each with name, type if it has one, and count: `[{"name": "gpu", "type": "h100", "count": 8}]`.

    slurmd finds whole devices of NVIDIA itself (images/worker/gres.py) and takes a type for them if it is part of the
    name that the driver gives, `nvidia_h100_80gb_hbm3`. A type that is not would drain the node; slurmd's start leaves
    such a one out (images/worker/gres.py).
    """
    gpus = pool.resources.gpus
    if gpus.mig:
        return [{"name": "gpu", "type": dotted(kind), "count": count} for kind, count in sorted(gpus.mig.items())]
    if not gpus.count:
        return []
    typed = {"type": pool.gpu_types[0]} if pool.gpu_types else {}
    shares = [{"name": "shard", "count": gpus.shard}] if gpus.shard else []
    return [{"name": "gpu", **typed, "count": gpus.count}, *shares]


def extended_resources(gpus: Gpus) -> dict[str, str]:
    """What a pod asks Kubernetes for. Shares of a GPU are Slurm's own: the pod has all GPUs whole."""
    if gpus.mig:
        return {f"nvidia.com/mig-{dotted(profile)}": str(count) for profile, count in sorted(gpus.mig.items())}
    return {_RESOURCES[gpus.vendor]: str(gpus.count)} if gpus.count else {}


def has_shards(pools: Iterable[WorkerPool]) -> bool:
    """Whether some of their nodes have shares of GPUs."""
    return any(pool.resources.gpus.shard for pool in pools)
