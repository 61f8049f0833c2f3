"""Default memory of jobs that no node has, so that Slurm would hold every job that asks for none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from config.base import parse_bytes
from config.cluster import Sections
from config.errors import Problem
from config.sections.scheduling import Partition
from config.sections.slurm import SettingValue, Slurm, folded
from config.sections.workers import WorkerPool

_MEBIBYTE = 2**20


def default_memory_problems(sections: Sections) -> Iterator[Problem]:
    """`DefMemPerCPU` for which no pool has the memory, in the whole cluster or in the partition that sets it.

    One CPU's memory is looked at: how many a job asks for nobody knows. Nothing is said of pools that are wrong.
    """
    pools: Mapping[str, WorkerPool] = sections.get("worker_nodes")
    slurm: Slurm | None = sections.get("slurm")
    if slurm is not None:
        yield from _too_much("slurm.settings", slurm.settings, sections.names("worker_nodes"), pools)
    partitions: Mapping[str, Partition] = sections.get("partitions")
    for name, partition in partitions.items():
        yield from _too_much(f"partitions.{name}.settings", partition.settings, partition.pools, pools)


def _too_much(
    where: str,
    settings: Mapping[str, SettingValue],
    names: list[str] | tuple[str, ...],
    pools: Mapping[str, WorkerPool],
) -> Iterator[Problem]:
    written = str(folded(settings).get("defmempercpu", ""))
    if not written.isdecimal() or not names or any(name not in pools for name in names):
        return
    largest = max((pools[name] for name in names), key=lambda pool: parse_bytes(pool.resources.memory))
    # Not less is too much already: slurmd keeps some of the pod's memory for itself.
    if float(written) * _MEBIBYTE >= parse_bytes(largest.resources.memory):
        message = (
            f"has DefMemPerCPU {written} (MiB), and no node has that for even one CPU: the largest has "
            f"{largest.resources.memory}, less what slurmd needs. Jobs that ask for no memory would never start; "
            f"write less"
        )
        yield Problem(where, message)
