"""What must hold for reservations: times, nodes, and for whom they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta

from config.errors import Problem, unknown_name
from config.rules.stack_file import Sections
from config.sections.partitions import Partition
from config.sections.scheduling import Reservation
from config.sections.workers import WorkerPool
from config.times import seconds

FOREVER = timedelta(days=365)
"""What Slurm makes of an unlimited duration (slurmctld/reservation.c)."""

_PERIODS = {
    "hourly": timedelta(hours=1),
    "daily": timedelta(days=1),
    "weekday": timedelta(days=1),
    "weekend": timedelta(days=1),
    "weekly": timedelta(days=7),
}


def reservation_problems(sections: Sections) -> Iterator[Problem]:
    """Reservations that Slurm would refuse, or that nobody could use."""
    for name, reservation in sections.get("reservations").items():
        where = f"reservations.{name}"
        yield from _times(where, reservation, sections.now)
        yield from _nodes(where, reservation, sections)
        yield from _people(where, reservation, sections)
    yield from _overlaps(sections.get("reservations"))


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


def _times(where: str, reservation: Reservation, now: datetime) -> Iterator[Problem]:
    if reservation.end is not None and reservation.duration is not None:
        yield Problem(f"{where}.duration", "is given beside end; remove one of them")
    times = window(reservation)
    if times is None:
        yield Problem(where, "does not say when it ends; set end or duration")
        return
    start, end = times
    field = "end" if reservation.end is not None else "duration"
    if end <= start:
        message = f"{reservation.end or reservation.duration} is not after the start, {reservation.start}"
        yield Problem(f"{where}.{field}", message)
    elif reservation.repeat is None and end <= now:
        message = f"is in the past: it ended {end:%Y-%m-%dT%H:%M:%S} (UTC); remove the reservation, or set a later time"
        yield Problem(f"{where}.{field}", message)
    elif reservation.repeat is not None and end - start > _PERIODS[reservation.repeat]:
        message = f"is longer than the time until the reservation comes again ({reservation.repeat}); make it shorter"
        yield Problem(f"{where}.{field}", message)


def _nodes(where: str, reservation: Reservation, sections: Sections) -> Iterator[Problem]:
    pools: Mapping[str, WorkerPool] = sections.get("worker_nodes")
    partitions: Mapping[str, Partition] = sections.get("partitions")
    names = sections.names("partitions") or ["main"]
    if reservation.partition is not None and reservation.partition not in names:
        yield Problem(f"{where}.partition", unknown_name(reservation.partition, names, what="a partition"))
        return
    if reservation.nodes and reservation.node_count is not None:
        yield Problem(f"{where}.node_count", "is given beside nodes; remove one of them")
        return
    if not reservation.nodes and reservation.node_count is None:
        yield Problem(where, "names no nodes; set nodes (names such as gpu-0) or node_count")
        return
    members = _members(reservation, partitions, sections)
    for node in dict.fromkeys(reservation.nodes):
        allowed = members if reservation.partition in partitions else None
        yield from _node(f"{where}.nodes", node, pools, sections.names("worker_nodes"), allowed)
    if reservation.node_count is not None and members is None:
        message = "is needed beside node_count: no partition is the default one, from which Slurm would take them"
        yield Problem(f"{where}.partition", message)
    elif reservation.node_count is not None and members and all(pool in pools for pool in members):
        there = sum(pools[pool].most for pool in members)
        if reservation.node_count > there:
            whose = f"partition {reservation.partition!r}" if reservation.partition else "default partition"
            message = f"{reservation.node_count} is more than the {there} nodes of the {whose}"
            yield Problem(f"{where}.node_count", message)


def _members(reservation: Reservation, partitions: Mapping[str, Partition], sections: Sections) -> list[str] | None:
    """Pools of the reservation's partition, or of the default one; None if there is none of either."""
    written = sections.names("partitions")
    if not written:
        return sections.names("worker_nodes")
    if reservation.partition is not None:
        chosen = partitions.get(reservation.partition)
        return list(chosen.pools) if chosen else sections.names("worker_nodes")
    default = [partition for partition in partitions.values() if partition.default or len(written) == 1]
    if not default and len(partitions) == len(written):
        return None
    return list(default[0].pools) if default else sections.names("worker_nodes")


def _node(
    where: str, node: str, pools: Mapping[str, WorkerPool], known: list[str], members: list[str] | None
) -> Iterator[Problem]:
    """One name of a node. A pool's nodes are numbered from 0. `members`: the pools from which it must be."""
    name, _, number = node.rpartition("-")
    numbered = (
        number.isascii() and number.isdecimal() and len(number) < 10 and (number == "0" or not number.startswith("0"))
    )
    if "[" in node or "," in node:
        yield Problem(where, f"{node!r} is no node; write the names one by one")
        return
    if name not in known or not numbered:
        message = f"{node!r} is no node"
        if name not in known:
            message = unknown_name(name or node, known, what=f"a pool of worker_nodes, so {node!r} is no node")
        yield Problem(where, f"{message}; the nodes of a pool are POOL-0, POOL-1, ...")
        return
    size = pools[name].most if name in pools else None
    if size is not None and int(number) >= size:
        nodes = f"has {size} nodes, {name}-0 to {name}-{size - 1}" if size > 1 else f"has only {name}-0"
        yield Problem(where, f"{node!r} is no node: the pool {name!r} {nodes if size else 'has size 0'}")
    elif members is not None and name not in members:
        message = f"{node!r} is not in the partition of the reservation, which has the pools {', '.join(members)}"
        yield Problem(where, message)


def _people(where: str, reservation: Reservation, sections: Sections) -> Iterator[Problem]:
    users, accounts = sections.names("users"), sections.names("accounts")
    if "sssd" not in sections.written:  # people of a directory are known only in the cluster
        for user in dict.fromkeys(reservation.users):
            if user not in users:
                yield Problem(f"{where}.users", unknown_name(user, users, what="a declared user"))
    for account in dict.fromkeys(reservation.accounts):
        if account not in accounts:
            message = unknown_name(account, accounts, what="an account of slurmstack:accounts")
            yield Problem(f"{where}.accounts", message)
    if not reservation.users and not reservation.accounts and not reservation.maintenance:
        yield Problem(where, "is for nobody; set users or accounts, or maintenance: true")


def _overlaps(reservations: Mapping[str, Reservation]) -> Iterator[Problem]:
    """Slurm refuses a second reservation of a node at a time, but for maintenance. Repeated ones are left to it."""
    once = [
        (name, one, times)
        for name, one in reservations.items()
        if one.repeat is None and not one.maintenance and one.nodes and (times := window(one)) is not None
    ]
    for index, (name, one, times) in enumerate(once):
        for other_name, other, other_times in once[:index]:
            both = [node for node in one.nodes if node in other.nodes]
            if both and times[0] < other_times[1] and other_times[0] < times[1]:
                message = f"overlaps with the reservation {other_name!r} on {', '.join(both)}; change time or nodes"
                yield Problem(f"reservations.{name}", message)
