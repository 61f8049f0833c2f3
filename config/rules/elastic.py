"""What must hold where a pool is elastic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from config.errors import Problem
from config.rules.stack_file import Sections
from config.sections.partitions import Partition
from config.sections.slurm import Slurm, folded
from config.sections.topology import Topology
from config.sections.workers import WorkerPool

_HIDDEN: Final = "elastic-"
"""What the names of the hidden partitions begin with (slurm/elastic.py)."""

_OURS: Final = (
    "resumeprogram", "suspendprogram", "resumefailprogram", "prologslurmctld", "suspendtime", "suspendtimeout",
    "resumetimeout", "resumerate", "suspendrate", "suspendexcnodes",
)  # fmt: skip


def elastic_problems(sections: Sections) -> Iterator[Problem]:
    """Settings and sections that do not go with elastic pools, and names that are taken."""
    pools: Mapping[str, WorkerPool] = sections.get("worker_nodes")
    elastic = [name for name, pool in pools.items() if pool.is_elastic]
    if not elastic:
        return
    slurm: Slurm | None = sections.get("slurm")
    written = folded(slurm.settings) if slurm is not None else {}
    for key in _OURS:
        if key in written:
            message = f"is what starts and ends the nodes of the elastic pool {elastic[0]!r}; remove it, or give the "
            yield Problem(f"slurm.settings.{key}", message + "pool a fixed size")
    partitions: Mapping[str, Partition] = sections.get("partitions")
    for name in partitions:
        if name.removeprefix(_HIDDEN) in elastic and name.startswith(_HIDDEN):
            yield Problem(f"partitions.{name}", "is the name of a partition that we make for the elastic pool")
    topology: Topology | None = sections.get("topology")
    for name in elastic:
        plugin = topology.plugin if topology is not None else None
        if plugin == "tree" or (plugin is None and pools[name].gpu_cluster is not None):
            message = "is elastic, and Slurm has a tree of switches (topology.plugin, or a gpu_cluster), whose nodes "
            message += "must stay; set topology.plugin: none, or give the pool a fixed size"
            yield Problem(f"worker_nodes.{name}.size", message)
