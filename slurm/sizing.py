"""What of a worker pod Slurm may give to jobs: memory, CPUs and GPUs, in Slurm's words and in those of Kubernetes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from config.base import parse_bytes
from config.sections.workers import WorkerPool

MEBIBYTE = 2**20

SLURMD_MEMORY_MIB = 128
"""Memory kept back in slurmd's container for slurmd, the helper and, where jobs have no cgroups, one slurmstepd per
running step. Measured in a local worker: slurmd 9 MiB, each slurmstepd 9 to 13 MiB. munged and SSSD have containers of
their own, whose memory Kubernetes counts beside the pool's."""

LARGE_WORKER_SHARE = 0.02
"""On large workers 2 % is kept back instead: more jobs, more steps, more page tables."""


def real_memory_mib(memory: str) -> int:
    """`RealMemory` in MiB of a worker whose pod has this much memory; always at least 1."""
    total = parse_bytes(memory) // MEBIBYTE
    reserved = max(SLURMD_MEMORY_MIB, int(total * LARGE_WORKER_SHARE))
    return max(1, total - reserved)


def memory_for(real_memory: int) -> str:
    """The least memory of a pod whose worker has this `RealMemory` in MiB, in whole GiB where it comes out even."""
    total = max(256, real_memory + SLURMD_MEMORY_MIB)
    while real_memory_mib(f"{total}Mi") < real_memory:
        total += max(1, (real_memory - real_memory_mib(f"{total}Mi")) // 2)
    return f"{total // 1024}Gi" if total % 1024 == 0 else f"{total}Mi"


def node_document(pool_name: str, pool: WorkerPool) -> dict[str, Any]:
    """What the pool's workers are told of themselves (images/common/slurm_node.py)."""
    return {
        "cpus": pool.resources.cpus,
        "memory_mib": real_memory_mib(pool.resources.memory),
        "features": list(dict.fromkeys((pool_name, *pool.features))),
        "gres": gres(pool),
        # What `sbatch --tmp` asks for. slurmd tells less where its machine has less (images/worker/scratch.py).
        "disk_mib": parse_bytes(pool.tmp if pool.scratch is None else pool.scratch.size) // MEBIBYTE,
    }


def node_conf(pool_name: str, pool: WorkerPool) -> str:
    """The same in Slurm's words, for nodes of elastic pools, which slurmctld knows before they are there."""
    node = node_document(pool_name, pool)
    words = [f"CPUs={node['cpus']}", f"RealMemory={node['memory_mib']}"]
    # How much the machine's disk has nobody knows before a node is there, and with less it would be drained.
    words += [f"TmpDisk={node['disk_mib']}"] if pool.scratch is not None else []
    words.append(f"Feature={','.join(node['features'])}")
    offered = [":".join(map(str, one.values())) for one in node["gres"]]
    return " ".join([*words, *([f"Gres={','.join(offered)}"] if offered else [])])


def default_memory_per_cpu_mib(pools: Iterable[WorkerPool]) -> int:
    """`DefMemPerCPU` in MiB: the smallest share that any of the pools has per CPU.

    So each of their nodes holds as many jobs of one CPU as it has CPUs. Without a default a job that asks for no memory
    gets a whole node: a 100-task array then takes 273 s, with it 1.8 s (measured on two nodes of two CPUs).
    """
    shares = [real_memory_mib(pool.resources.memory) // pool.resources.cpus for pool in pools]
    return max(1, min(shares, default=1))


def most_memory_mib(pools: Iterable[WorkerPool]) -> int:
    """`MaxMemPerNode` in MiB: what the largest node has for jobs."""
    return max((real_memory_mib(pool.resources.memory) for pool in pools), default=1)


def max_node_count(pools: dict[str, WorkerPool]) -> int:
    """`MaxNodeCount`: room for twice the nodes there are, as a power of two, at least 1024.

    The steps are coarse on purpose: changing a pool's size should change nothing but the pool.
    """
    count = 1024
    while count < 2 * sum(pool.most for pool in pools.values()):
        count *= 2
    return count


def shared_memory(pool: WorkerPool) -> str:
    """Size limit of `/dev/shm`: as written, else half of the pod's memory, as Linux gives a tmpfs by default."""
    if pool.shared_memory is not None:
        return pool.shared_memory
    return f"{max(1, parse_bytes(pool.resources.memory) // MEBIBYTE // 2)}Mi"


_RESOURCES = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu"}
"""Vendor -> what its device plugin offers to pods."""


def gres(pool: WorkerPool) -> list[dict[str, Any]]:
    """What a node has, each with name, type if it has one, and count: `[{"name": "gpu", "type": "h100", "count": 8}]`.

    Which device is of which type, the worker finds out (images/worker/gres.py).
    """
    shard, kinds = pool.resources.gpus.shard, pool.gpu_kinds.items()
    gpus = [{"name": "gpu", **({"type": kind} if kind else {}), "count": count} for kind, count in kinds]
    return [*gpus, *([{"name": "shard", "count": shard}] if shard else [])]


def extended_resources(pool: WorkerPool) -> dict[str, str]:
    """What a pod asks Kubernetes for. Shares of a GPU are Slurm's own: the pod has all GPUs whole."""
    gpus = pool.resources.gpus
    if gpus.mig:
        return {f"nvidia.com/mig-{profile}": str(count) for profile, count in pool.gpu_kinds.items()}
    return {_RESOURCES[gpus.vendor]: str(gpus.count)} if gpus.count else {}


def has_shards(pools: Iterable[WorkerPool]) -> bool:
    """Whether some of their nodes have shares of GPUs."""
    return any(pool.resources.gpus.shard for pool in pools)
