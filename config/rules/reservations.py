"""What must hold for reservations: times, nodes, and for whom they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta

from config.base import seconds
from config.cluster import Sections
from config.errors import Problem, unknown_name
from config.sections.scheduling import Reservation
from config.sections.workers import WorkerPool

FOREVER = timedelta(days=365)
"""What Slurm makes of an unlimited duration (slurmctld/reservation.c)."""


def reservation_problems(sections: Sections) -> Iterator[Problem]:
    """Reservations that Slurm would refuse, or that nobody could use."""
    for name, reservation in sections.get("reservations").items():
        where = f"reservations.{name}"
        yield from _times(where, reservation, sections.now)
        yield from _nodes(where, reservation, sections)
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


def _times(where: str, reservation: Reservation, now: datetime) -> Iterator[Problem]:
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


def _nodes(where: str, reservation: Reservation, sections: Sections) -> Iterator[Problem]:
    pools: Mapping[str, WorkerPool] = sections.get("worker_nodes")
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
    for node in dict.fromkeys(reservation.nodes):
        yield from _node(f"{where}.nodes", node, pools, sections.names("worker_nodes"))


def _node(where: str, node: str, pools: Mapping[str, WorkerPool], known: list[str]) -> Iterator[Problem]:
    """One name of a node. A pool's nodes are numbered from 0."""
    name, _, number = node.rpartition("-")
    if name not in known:
        message = unknown_name(name or node, known, what=f"a pool of worker_nodes, so {node!r} is no node")
        yield Problem(where, f"{message}; the nodes of a pool are POOL-0, POOL-1, ..., one by one")
    elif name in pools and number not in {str(one) for one in range(pools[name].most)}:
        size = pools[name].most
        last = f", the last one {name}-{size - 1}" if size else ""
        yield Problem(where, f"{node!r} is no node: the pool {name!r} has {size} of them{last}")


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
