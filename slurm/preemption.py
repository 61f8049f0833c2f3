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
    # Only the gang scheduler wakes suspended jobs again.
    gang = ",GANG" if preemption.mode == "suspend" else ""
    return {
        "PreemptType": _TYPES[preemption.type],
        "PreemptMode": f"{preemption.mode.upper()}{gang}",
        **({"PreemptExemptTime": preemption.exempt_time} if preemption.exempt_time is not None else {}),
        # Slurm's own default, said here because preemption rests on it: without it a job that should be queued again
        # is cancelled, unless its user has asked for --requeue.
        "JobRequeue": "1",
    }


def partition_options(config: ClusterConfig, partition: Partition) -> dict[str, str]:
    """What a partition's line says about preemption."""
    preemption = config.preemption
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
