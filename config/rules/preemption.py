"""What must hold between preemption, QOS and partitions, and within priority."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from config.base import seconds
from config.cluster import Sections
from config.errors import Problem
from config.sections.accounting import Qos
from config.sections.scheduling import Partition, Preemption, Priority

_TIME_SLICING = (
    "suspend is not for preemption.type qos: Slurm does not stop jobs of the same partition then, victim and preemptor "
    "take turns on the nodes (slurm.conf(5), PreemptMode=SUSPEND); take requeue or cancel, or preemption.type partition"
)


def preemption_problems(sections: Sections) -> Iterator[Problem]:
    """Modes and times that would do something else than they say."""
    qos: Mapping[str, Qos] = sections.get("qos")
    partitions: Mapping[str, Partition] = sections.get("partitions")
    preemption: Preemption | None = sections.get("preemption")
    if preemption is None:
        return
    times = {f"qos.{name}.preempt_exempt_time": one.preempt_exempt_time for name, one in qos.items()}
    for where, time in {**times, "preemption.exempt_time": preemption.exempt_time}.items():
        if time is not None and seconds(time) is None:  # to Slurm that is one that is not set
            message = "cannot be unlimited: Slurm would take it for no time at all; write a long time, such as 365-0"
            yield Problem(where, message)
    if preemption.type == "qos":
        modes = {f"qos.{name}.preempt_mode": one.preempt_mode for name, one in qos.items()}
        for where, mode in {"preemption.mode": preemption.mode, **modes}.items():
            if mode == "suspend":
                yield Problem(where, _TIME_SLICING)
    if preemption.type == "partition" and preemption.mode != "suspend":
        for name, partition in partitions.items():
            if partition.preempt_mode == "suspend":
                message = (
                    "suspend needs PreemptMode=SUSPEND,GANG for the whole cluster; set preemption.mode suspend, and "
                    "another preempt_mode for the partitions whose jobs shall not be suspended"
                )
                yield Problem(f"partitions.{name}.preempt_mode", message)


def priority_problems(sections: Sections) -> Iterator[Problem]:
    """Usage that is never forgotten, and factors that count nothing."""
    priority: Priority | None = sections.get("priority")
    if priority is None:
        return
    half_life = seconds(priority.decay_half_life)
    if half_life is None:
        yield Problem("priority.decay_half_life", "cannot be unlimited; 0 means that usage never decays")
    elif half_life == 0 and priority.usage_reset_period == "NONE":
        message = "is 0, so usage would add up for ever; set usage_reset_period too, for example MONTHLY"
        yield Problem("priority.decay_half_life", message)
    if seconds(priority.max_age) in {None, 0}:
        yield Problem("priority.max_age", "must be a time, for example 7-0 (seven days)")
