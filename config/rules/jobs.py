"""What must hold for the order of jobs: priority, preemption, reservations, and rules at submission."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from config.base import longer, seconds
from config.cluster import Sections
from config.errors import Found, unknown_name
from config.sections.accounting import Qos
from config.sections.scheduling import JobSubmit, Partition, Preemption, Priority, Reservation
from config.sections.workers import WorkerPool


def preemption(preemption: Preemption, qos: Mapping[str, Qos], partitions: Mapping[str, Partition]) -> Found:
    """Modes and times that would do something else than they say."""
    times = {f"qos.{name}.preempt_exempt_time": one.preempt_exempt_time for name, one in qos.items()}
    for where, time in {**times, "preemption.exempt_time": preemption.exempt_time}.items():
        if time is not None and seconds(time) is None:  # to Slurm that is one that is not set
            message = "cannot be unlimited: Slurm would take it for no time at all; write a long time, such as 365-0"
            yield where, message
    if preemption.type == "qos":
        modes = {f"qos.{name}.preempt_mode": one.preempt_mode for name, one in qos.items()}
        for where, mode in {"preemption.mode": preemption.mode, **modes}.items():
            if mode == "suspend":
                message = (
                    "suspend is not for preemption.type qos: Slurm does not stop jobs of the same partition then, "
                    "victim and preemptor take turns on the nodes (slurm.conf(5), PreemptMode=SUSPEND); take requeue "
                    "or cancel, or preemption.type partition"
                )
                yield where, message
    if preemption.type == "partition" and preemption.mode != "suspend":
        for name, partition in partitions.items():
            if partition.preempt_mode == "suspend":
                message = (
                    "suspend needs PreemptMode=SUSPEND,GANG for the whole cluster; set preemption.mode suspend, and "
                    "another preempt_mode for the partitions whose jobs shall not be suspended"
                )
                yield f"partitions.{name}.preempt_mode", message


def priority(priority: Priority) -> Found:
    """Usage that is never forgotten, and factors that count nothing."""
    half_life = seconds(priority.decay_half_life)
    if half_life is None:
        yield "priority.decay_half_life", "cannot be unlimited; 0 means that usage never decays"
    elif half_life == 0 and priority.usage_reset_period == "NONE":
        message = "is 0, so usage would add up for ever; set usage_reset_period too, for example MONTHLY"
        yield "priority.decay_half_life", message
    if seconds(priority.max_age) in {None, 0}:
        yield "priority.max_age", "must be a time, for example 7-0 (seven days)"


FOREVER = timedelta(days=365)
"""What Slurm makes of an unlimited duration (slurmctld/reservation.c)."""


def reservations(
    sections: Sections, reservations: Mapping[str, Reservation], worker_nodes: Mapping[str, WorkerPool]
) -> Found:
    """Reservations that Slurm would refuse, or that nobody could use: times, nodes, and for whom they are."""
    for name, reservation in reservations.items():
        where = f"reservations.{name}"
        yield from _times(where, reservation, sections.now)
        yield from _nodes(where, reservation, sections, worker_nodes)
        yield from _people(where, reservation, sections)


def window(reservation: Reservation) -> tuple[datetime, datetime] | None:
    """Begin and end of a reservation (the first time of a repeated one); None if it does not say when it ends."""
    start = datetime.fromisoformat(reservation.start).replace(tzinfo=UTC)
    if reservation.end is not None:
        return start, datetime.fromisoformat(reservation.end).replace(tzinfo=UTC)
    if reservation.duration is None:
        return None
    length = seconds(reservation.duration)
    try:
        return start, start + (FOREVER if length is None else timedelta(seconds=length))
    except OverflowError:
        return start, datetime.max.replace(tzinfo=UTC)


def _times(where: str, reservation: Reservation, now: datetime) -> Found:
    times = window(reservation)
    if times is None:
        yield where, "does not say when it ends; set end or duration"
        return
    start, end = times
    field = "end" if reservation.end is not None else "duration"
    if end <= start:
        message = f"{reservation.end or reservation.duration} is not after the start, {reservation.start}"
        yield f"{where}.{field}", message
    elif reservation.repeat is None and end <= now:
        message = f"is in the past: it ended {end:%Y-%m-%dT%H:%M:%S} (UTC); remove the reservation, or set a later time"
        yield f"{where}.{field}", message


def _nodes(where: str, reservation: Reservation, sections: Sections, pools: Mapping[str, WorkerPool]) -> Found:
    names = sections.names("partitions") or ["main"]
    if reservation.partition is not None and reservation.partition not in names:
        yield f"{where}.partition", unknown_name(reservation.partition, names, what="a partition")
    elif reservation.nodes and reservation.node_count is not None:
        yield f"{where}.node_count", "is given beside nodes; remove one of them"
    elif not reservation.nodes and reservation.node_count is None:
        yield where, "names no nodes; set nodes (names such as gpu-0) or node_count"
    else:
        for node in dict.fromkeys(reservation.nodes):
            yield from _node(f"{where}.nodes", node, pools, sections.names("worker_nodes"))


def _node(where: str, node: str, pools: Mapping[str, WorkerPool], known: list[str]) -> Found:
    """One name of a node. A pool's nodes are numbered from 0."""
    name, _, number = node.rpartition("-")
    if name not in known:
        message = unknown_name(name or node, known, what=f"a pool of worker_nodes, so {node!r} is no node")
        yield where, f"{message}; the nodes of a pool are POOL-0, POOL-1, ..., one by one"
    elif name in pools and number not in {str(one) for one in range(pools[name].most)}:
        size = pools[name].most
        last = f", the last one {name}-{size - 1}" if size else ""
        yield where, f"{node!r} is no node: the pool {name!r} has {size} of them{last}"


def _people(where: str, reservation: Reservation, sections: Sections) -> Found:
    users, accounts = sections.names("users"), sections.names("accounts")
    if "sssd" not in sections.written:  # people of a directory are known only in the cluster
        for user in dict.fromkeys(reservation.users):
            if user not in users:
                yield f"{where}.users", unknown_name(user, users, what="a declared user")
    for account in dict.fromkeys(reservation.accounts):
        if account not in accounts:
            yield f"{where}.accounts", unknown_name(account, accounts, what="an account of slurmstack:accounts")
    if not reservation.users and not reservation.accounts and not reservation.maintenance:
        yield where, "is for nobody; set users or accounts, or maintenance: true"


def submission(sections: Sections, job_submit: JobSubmit | None, partitions: Mapping[str, Partition]) -> Found:
    """Default times that are longer than the longest, and a rule that refuses everything."""
    rules = job_submit or JobSubmit()
    for name, partition in partitions.items():
        default = partition.default_time or rules.default_time
        if default is not None and longer(default, partition.max_time):
            where = f"partitions.{name}.default_time" if partition.default_time else "job_submit.default_time"
            message = (
                f"{default} is longer than the max_time of the partition {name!r}, {partition.max_time}; take less, or "
                f"set partitions.{name}.default_time"
            )
            yield where, message
    if rules.require_account and not sections.names("accounts"):
        message = "is set, but no accounts are declared that a job could name; declare them in slurmstack:accounts"
        yield "job_submit.require_account", message
