"""Partitions and the node sets they are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from config.partitions import Partition
from slurm.settings import format_value


@dataclass(frozen=True, kw_only=True)
class PartitionLine:
    """One `PartitionName` line of slurm.conf."""

    name: str
    node_sets: tuple[str, ...]
    options: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        options = " ".join(f"{key}={value}" for key, value in self.options)
        return f"PartitionName={self.name} Nodes={','.join(self.node_sets)} {options}"


def partition_lines(partitions: Mapping[str, Partition], pools: Mapping[str, object]) -> list[PartitionLine]:
    """The partitions as written, or the one partition `main` with all pools if none is written.

    A partition that is alone is the default one, so that `sbatch` without `--partition` always works there.
    """
    declared = partitions or {"main": Partition(pools=tuple(pools))}
    return [_line(name, partition, alone=len(declared) == 1) for name, partition in declared.items()]


def _line(name: str, partition: Partition, *, alone: bool) -> PartitionLine:
    options = {"MaxTime": partition.max_time, "State": "UP"}
    if partition.default or alone:
        options["Default"] = "YES"
    if partition.default_time is not None:
        options["DefaultTime"] = partition.default_time
    lower = {key.lower(): key for key in options}
    for key, value in partition.settings.items():
        options[lower.get(key.lower(), key)] = format_value(value)
    return PartitionLine(name=name, node_sets=partition.pools, options=tuple(options.items()))
