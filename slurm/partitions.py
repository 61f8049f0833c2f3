"""Partitions and the node sets they are made of."""

from __future__ import annotations

from dataclasses import dataclass

from config.cluster import ClusterConfig
from config.sections.scheduling import Partition, Preemption
from config.sections.slurm import folded, merge
from slurm.sizing import default_memory_per_cpu_mib

_DEFAULT_MEMORY = frozenset({"defmempercpu", "defmempernode", "defmempergpu"})
"""Keys that say what memory a job has that asks for none; one at a time holds."""


@dataclass(frozen=True, kw_only=True)
class PartitionLine:
    """One `PartitionName` line of slurm.conf."""

    name: str
    node_sets: tuple[str, ...]
    options: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        options = " ".join(f"{key}={value}" for key, value in self.options)
        return f"PartitionName={self.name} Nodes={','.join(self.node_sets)} {options}"

    def option(self, key: str) -> str:
        """Value of an option, empty where it is not set. Slurm's keys do not depend on case."""
        return next((value for name, value in self.options if name.lower() == key.lower()), "")


def partition_lines(config: ClusterConfig) -> list[PartitionLine]:
    """The partitions as written, or the one partition `main` with all pools if none is written.

    A partition that is alone is the default one, so that `sbatch` without `--partition` always works there.
    """
    declared = config.partitions or {"main": Partition(pools=tuple(config.worker_nodes))}
    return [_line(config, name, partition, alone=len(declared) == 1) for name, partition in declared.items()]


def _line(config: ClusterConfig, name: str, partition: Partition, *, alone: bool) -> PartitionLine:
    options = {"MaxTime": partition.max_time, "State": "UP"}
    if partition.default or alone:
        options["Default"] = "YES"
    # The common one is an option of partitions and no rule at submission: a job that names several partitions gets the
    # time of the one in which it starts.
    default_time = partition.default_time or config.job_submit.default_time
    if default_time is not None:
        options["DefaultTime"] = default_time
    options |= _default_memory(config, partition)
    options |= _access(partition)
    options |= _preemption(config.preemption, partition)
    options = merge(options, partition.settings)
    return PartitionLine(name=name, node_sets=partition.pools, options=tuple(options.items()))


def _default_memory(config: ClusterConfig, partition: Partition) -> dict[str, str]:
    """A job's memory if it asks for none: the share of a CPU in these pools, where it is not what all pools have.

    What the stack file says of that, for the cluster or for the partition, stands alone. A job that names several
    partitions has the memory of the one in which it starts (tests/slurm/test_memory.py).
    """
    if _DEFAULT_MEMORY & (folded(config.slurm.settings).keys() | folded(partition.settings).keys()):
        return {}
    everywhere = default_memory_per_cpu_mib(config.worker_nodes.values())
    here = default_memory_per_cpu_mib(config.worker_nodes[name] for name in partition.pools)
    return {"DefMemPerCPU": str(here)} if here != everywhere else {}


def _access(partition: Partition) -> dict[str, str]:
    """Who may run jobs in it, and how they stand against those of other partitions."""
    lists = {
        "AllowAccounts": partition.allow_accounts,
        "DenyAccounts": partition.deny_accounts,
        "AllowGroups": partition.allow_groups,
        "AllowQos": partition.allow_qos,
        "DenyQos": partition.deny_qos,
    }
    values = {
        "QOS": partition.qos,
        "PriorityTier": partition.priority_tier,
        "PriorityJobFactor": partition.priority_job_factor,
    }
    return {
        **{key: _quoted(",".join(names)) for key, names in lists.items() if names},
        **{key: str(value) for key, value in values.items() if value is not None},
    }


def _quoted(value: str) -> str:
    """As Slurm reads a value with a blank, such as that of a directory's group."""
    return f'"{value}"' if " " in value else value


def _preemption(preemption: Preemption, partition: Partition) -> dict[str, str]:
    """Whether its jobs give way otherwise than all others do."""
    if preemption.type != "partition":
        return {}
    options = {}
    if partition.preempt_mode is not None:
        options["PreemptMode"] = partition.preempt_mode.upper()
    if (partition.preempt_mode or preemption.mode) == "suspend":
        # With OverSubscribe=NO nothing in the partition is suspended (slurm.conf(5)). FORCE:1 still gives a CPU to one
        # running job only.
        options["OverSubscribe"] = "FORCE:1"
    return options
