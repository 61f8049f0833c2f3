"""What must hold between preemption, QOS and partitions, and within priority."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from config.errors import Problem
from config.rules.stack_file import Sections
from config.sections.partitions import Partition
from config.sections.policy import Qos
from config.sections.scheduling import Preemption, Priority
from config.sections.slurm import SettingValue, Slurm, folded
from config.times import seconds

_TIME_SLICING = (
    "with preempt/qos Slurm does not stop jobs of the same partition: victim and preemptor take turns on the nodes "
    "(slurm.conf(5), PreemptMode=SUSPEND); take requeue or cancel, or preemption.type partition"
)


def preemption_problems(sections: Sections) -> Iterator[Problem]:
    """Preemption that contradicts itself, or that nothing ever triggers."""
    qos: Mapping[str, Qos] = sections.get("qos")
    partitions: Mapping[str, Partition] = sections.get("partitions")
    preemption: Preemption | None = sections.get("preemption")
    slurm: Slurm | None = sections.get("slurm")
    yield from _exempt_times(preemption, qos)
    if preemption is None or slurm is None or folded(slurm.settings).keys() & {"preempttype", "preemptmode"}:
        return  # who sets these by hand, has Slurm's own checks
    match preemption.type:
        case "none":
            yield from _without(preemption, qos, partitions)
        case "qos":
            yield from _by_qos(preemption, qos, partitions)
        case "partition":
            yield from _by_partition(preemption, qos, partitions)
    yield from _grace(preemption, qos)


def _exempt_times(preemption: Preemption | None, qos: Mapping[str, Qos]) -> Iterator[Problem]:
    """To Slurm an infinite time is one that is not set (slurm.conf(5), PreemptExemptTime)."""
    times = {f"qos.{name}.preempt_exempt_time": one.preempt_exempt_time for name, one in qos.items()}
    times["preemption.exempt_time"] = None if preemption is None else preemption.exempt_time
    for where, time in times.items():
        if time is not None and seconds(time) is None:
            message = "cannot be unlimited: Slurm would take it for no time at all; write a long time, such as 365-0"
            yield Problem(where, message)


def _without(preemption: Preemption, qos: Mapping[str, Qos], partitions: Mapping[str, Partition]) -> Iterator[Problem]:
    remedy = "has no effect with preemption.type none; set the type to {}, or remove this"
    for field in sorted(preemption.model_fields_set & {"mode", "exempt_time"}):
        if getattr(preemption, field) is not None:
            yield Problem(f"preemption.{field}", remedy.format("qos or partition"))
    for name, one in qos.items():
        for field in ("preempt", "preempt_exempt_time", "grace_time"):
            if getattr(one, field):
                yield Problem(f"qos.{name}.{field}", remedy.format("qos"))
        if one.preempt_mode != "cluster":
            yield Problem(f"qos.{name}.preempt_mode", remedy.format("qos"))
    for name, partition in partitions.items():
        if partition.preempt_mode is not None:
            yield Problem(f"partitions.{name}.preempt_mode", remedy.format("partition"))


def _by_qos(preemption: Preemption, qos: Mapping[str, Qos], partitions: Mapping[str, Partition]) -> Iterator[Problem]:
    if not any(one.preempt for one in qos.values()):
        message = "is qos, but no QOS preempts another; set qos.<name>.preempt, or the type none"
        yield Problem("preemption.type", message)
    if preemption.mode == "suspend":
        yield Problem("preemption.mode", f"suspend is not for preemption.type qos: {_TIME_SLICING}")
    for name, one in qos.items():
        if one.preempt_mode == "suspend":
            yield Problem(f"qos.{name}.preempt_mode", f"suspend is not for preemption.type qos: {_TIME_SLICING}")
    for name, partition in partitions.items():
        if partition.preempt_mode is not None:
            message = "has no effect with preemption.type qos: Slurm looks at qos.<name>.preempt_mode only; remove it"
            yield Problem(f"partitions.{name}.preempt_mode", message)


def _by_partition(
    preemption: Preemption, qos: Mapping[str, Qos], partitions: Mapping[str, Partition]
) -> Iterator[Problem]:
    tiers = {name: tier(partition) for name, partition in partitions.items()}
    pairs = [
        (high, low)
        for high in tiers
        for low in tiers
        if tiers[high] > tiers[low] and set(partitions[high].pools) & set(partitions[low].pools)
    ]
    if not pairs:
        message = (
            "is partition, but no two partitions with a pool in common have different priority_tier; give the one "
            "whose jobs go first a higher partitions.<name>.priority_tier (default: 1)"
        )
        yield Problem("preemption.type", message)
    elif all(partitions[low].preempt_mode == "off" for _, low in pairs):
        message = "is partition, but every partition with a lower priority_tier has preempt_mode off; change one"
        yield Problem("preemption.type", message)
    if preemption.mode != "suspend":
        for name, partition in partitions.items():
            if partition.preempt_mode == "suspend":
                message = (
                    "suspend needs PreemptMode=SUSPEND,GANG for the whole cluster; set preemption.mode suspend, and "
                    "another preempt_mode for the partitions whose jobs shall not be suspended"
                )
                yield Problem(f"partitions.{name}.preempt_mode", message)
    for name, one in qos.items():
        for field, unset in (("preempt", ()), ("preempt_mode", "cluster"), ("grace_time", 0)):
            if getattr(one, field) != unset:
                message = "has no effect with preemption.type partition; set the type to qos, or remove this"
                yield Problem(f"qos.{name}.{field}", message)


def tier(partition: Partition) -> int:
    """`PriorityTier` as Slurm will have it."""
    written: SettingValue | None = folded(partition.settings).get("prioritytier")
    if isinstance(written, int):
        return int(written)
    if isinstance(written, str) and written.isdecimal() and len(written) < 10:
        return int(written)
    return 1 if partition.priority_tier is None else partition.priority_tier


def _grace(preemption: Preemption, qos: Mapping[str, Qos]) -> Iterator[Problem]:
    """GraceTime and PreemptExemptTime are for requeue and cancel only (sacctmgr(1), slurm.conf(5))."""
    if preemption.type != "partition" or preemption.mode != "suspend":
        return
    why = (
        "has no effect with the mode suspend: suspended jobs are stopped at once; remove it, or take requeue or cancel"
    )
    if preemption.exempt_time is not None:
        yield Problem("preemption.exempt_time", why)
    for name, one in qos.items():
        if one.preempt_exempt_time is not None:
            yield Problem(f"qos.{name}.preempt_exempt_time", why)


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
