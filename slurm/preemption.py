"""Which jobs give way, and how."""

from __future__ import annotations

from config.cluster import ClusterConfig
from config.partitions import Partition

_TYPES = {"qos": "preempt/qos", "partition": "preempt/partition_prio"}


def preemption_settings(config: ClusterConfig) -> dict[str, str]:
    """Keys of slurm.conf for `slurmstack:preemption`; none where no job gives way to another."""
    preemption = config.preemption
    if preemption.type == "none":
        return {}
    modes = {preemption.mode, *_modes_of_parts(config)}
    # Only the gang scheduler wakes suspended jobs again, and it is on for the whole cluster or not at all.
    gang = ",GANG" if "suspend" in modes else ""
    return {
        "PreemptType": _TYPES[preemption.type],
        "PreemptMode": f"{preemption.mode.upper()}{gang}",
        **({"PreemptExemptTime": preemption.exempt_time} if preemption.exempt_time is not None else {}),
        # Slurm's own default, said here because preemption rests on it: without it a job that should be queued again
        # is cancelled, unless its user has asked for --requeue.
        **({"JobRequeue": "1"} if "requeue" in modes else {}),
    }


def partition_options(config: ClusterConfig, partition: Partition) -> dict[str, str]:
    """What a partition's line says about preemption."""
    if config.preemption.type == "none":
        return {}
    options = {}
    if partition.preempt_mode is not None:
        options["PreemptMode"] = partition.preempt_mode.upper()
    if _suspends(config, partition):
        # With OverSubscribe=NO nothing in the partition is suspended (slurm.conf(5)). FORCE:1 still gives a CPU to one
        # running job only.
        options["OverSubscribe"] = "FORCE:1"
    return options


def _suspends(config: ClusterConfig, partition: Partition) -> bool:
    """Whether jobs of the partition may be suspended for others."""
    preemption = config.preemption
    if preemption.type == "qos":
        return "suspend" in {preemption.mode, *(qos.preempt_mode for qos in config.qos.values())}
    return (partition.preempt_mode or preemption.mode) == "suspend"


def _modes_of_parts(config: ClusterConfig) -> set[str]:
    """Modes that a QOS or a partition has for itself. Slurm heeds those of the type of preemption that is on."""
    if config.preemption.type == "qos":
        return {qos.preempt_mode for qos in config.qos.values()}
    return {partition.preempt_mode for partition in config.partitions.values() if partition.preempt_mode is not None}
