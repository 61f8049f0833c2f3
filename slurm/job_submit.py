"""What the script of rules for every job at its submission must know (`slurm_templates/job_submit.lua.j2`)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from config.cluster import ClusterConfig
from slurm.partitions import PartitionLine


@dataclass(frozen=True, kw_only=True)
class GpuPartition:
    """What the rule about GPUs must know of a partition."""

    name: str
    some: bool
    """Whether a node of it may have GPUs."""
    every: bool
    """Whether a job that asks for none would keep others from them."""


def script_values(config: ClusterConfig, lines: Iterable[PartitionLine]) -> dict[str, object]:
    """What the template of the script needs."""
    lines = list(lines)
    partitions = [_gpu_partition(config, line) for line in lines]
    return {
        "rules": config.job_submit,
        "default_partition": next((line.name for line in lines if line.option("Default").upper() == "YES"), None),
        "gpu_partitions": partitions,
        "with_gpus": " or ".join(partition.name for partition in partitions if partition.some),
        "without_gpus": " or ".join(partition.name for partition in partitions if not partition.every),
    }


def _gpu_partition(config: ClusterConfig, line: PartitionLine) -> GpuPartition:
    gpus = [config.worker_nodes[pool].resources.gpus.count > 0 for pool in line.node_sets]
    # Where every job gets whole nodes, it gets their GPUs too and need not ask.
    whole_nodes = line.option("OverSubscribe").upper() == "EXCLUSIVE"
    return GpuPartition(name=line.name, some=any(gpus), every=all(gpus) and not whole_nodes)
