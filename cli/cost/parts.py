"""The parts of a stack that are paid for: how many there can be, and the price of one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from math import fsum

from config.base import gibibytes
from config.cluster import ClusterConfig
from config.nebius.cloud import NebiusCloud
from config.nebius.needs import STATE_DISK_TYPE, machines_for, needs
from config.sections.prices import DEFAULT_CLASS, Prices
from config.sections.windows import WEEK
from config.sections.workers import WorkerPool
from config.volumes import data_volumes

HOURS_A_MONTH = 730
"""Hours of a month in clouds' price lists: the twelfth part of 365 days."""


_Counts = tuple[int, int, float]
"""How many there are at least, at most, and at least on average over a week."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """Things of one kind that cost the same each."""

    name: str
    """What people call it: `gpu`, `gpu boot disk 512 GiB`, `jail 2,048 GiB`."""
    key: str
    """Where its price stands below `prices`, or would stand: `pools.gpu`."""
    least: int
    """How many there are in any case."""
    most: int
    """How many there can be."""
    price: float | None
    """An hour of one; None: the stack file has no price for it."""
    usual: float
    """How many there are at least, on average over a week: more than `least` where a pool has windows."""


@dataclass(frozen=True)
class Cost:
    """What a stack costs. What has no price is left out of the sums: they are then what it costs at least."""

    currency: str
    parts: tuple[Part, ...]
    weeks: tuple[str, ...] = ()
    """Of each pool with windows, for how many hours of a week it has how many nodes at least."""

    @cached_property
    def least(self) -> float:
        """An hour of the stack at its smallest."""
        return fsum(part.least * (part.price or 0) for part in self.parts)

    @cached_property
    def usual(self) -> float:
        """An hour of the stack at its smallest, on average over a week with its windows."""
        return fsum(part.usual * (part.price or 0) for part in self.parts)

    @cached_property
    def most(self) -> float:
        """An hour of the stack at its largest."""
        return fsum(part.most * (part.price or 0) for part in self.parts)

    @property
    def without_price(self) -> Mapping[str, list[str]]:
        """Prices that are missing, and the parts that each is for."""
        found: defaultdict[str, list[str]] = defaultdict(list)
        for part in self.parts:
            if part.price is None:
                found[part.key].append(part.name)
        return found


def cost_of(config: ClusterConfig, prices: Prices | None = None) -> Cost | None:
    """What the stack costs by these prices; default: its own. None where there is no price at all."""
    prices = prices or config.prices
    if not prices.are_given:
        return None
    made = isinstance(config.cloud, NebiusCloud)
    parts = (*(_machines if made else _nodes)(config, prices), *_storage(config, prices), *_others(config, prices))
    weeks = tuple(_week(name, pool) for name, pool in config.worker_nodes.items() if len(pool.kept) > 1)
    return Cost(prices.currency, tuple(part for part in parts if part.most), weeks)


def _week(name: str, pool: WorkerPool) -> str:
    hours = [f"{kept:,} for {minutes / 60:g} hours" for kept, minutes in sorted(pool.kept.items(), reverse=True)]
    return f"nodes of {name} at least, in a week: {', '.join(hours)}"


def _usual(pool: WorkerPool, number: Callable[[int], float]) -> float:
    """Average over a week. `number`: of things, where the pool keeps so many nodes."""
    return fsum(number(kept) * minutes for kept, minutes in pool.kept.items()) / WEEK


def _machines(config: ClusterConfig, prices: Prices) -> Iterator[Part]:
    for item in needs(config).nodes:
        name = item.pool or item.role
        pool = config.worker_nodes[item.pool] if item.pool is not None else None
        usual = item.count if pool is None else _usual(pool, partial(machines_for, pool))
        counts = (item.count, item.most, usual)
        kind = f"{item.platform}/{item.preset}"
        if pool is not None and pool.preemptible:
            kind += "/preemptible"
        if item.pool in prices.pools:
            yield _part(name, "pools", name, prices.pools, counts)
        else:
            yield _part(name, "machines", kind, prices.machines, counts)
        yield _stored(f"{name} boot disk", item.disk_gib, f"disk/{item.disk_type}", prices, counts)


def _nodes(config: ClusterConfig, prices: Prices) -> Iterator[Part]:
    """Workers on machines that somebody else made: what a node of the pool costs is all that can be known."""
    for name, pool in config.worker_nodes.items():
        more = pool.warm_machines
        counts = (pool.least + more, pool.most + more, _usual(pool, float) + more)
        yield _part(name, "pools", name, prices.pools, counts)


def _storage(config: ClusterConfig, prices: Prices) -> Iterator[Part]:
    made = isinstance(config.cloud, NebiusCloud)
    for volume in data_volumes(config):
        kind = volume.storage_class or DEFAULT_CLASS
        if made and volume.filesystem is not None:
            if volume.filesystem.id is not None:
                continue  # it is there, and paid for, without the stack
            kind = f"filesystem/{volume.filesystem.type}"
        elif made and volume.storage_class is None:
            kind = f"disk/{STATE_DISK_TYPE}"
        yield _stored(volume.name, volume.size_gib, kind, prices, (1, 1, 1))
    for name, pool in config.worker_nodes.items():
        if pool.scratch is not None and pool.scratch.storage_class is not None:
            size, counts = gibibytes(pool.scratch.size), (pool.least, pool.most, _usual(pool, float))
            yield _stored(f"{name} scratch", size, pool.scratch.storage_class, prices, counts)


def _others(config: ClusterConfig, prices: Prices) -> Iterator[Part]:
    services = {"login": config.login.service_type, "rest": config.rest.enabled and config.rest.service_type}
    for name, kind in services.items():
        if kind == "LoadBalancer":
            balancer, key = f"{name} load balancer", "load_balancer"
            yield Part(name=balancer, key=key, least=1, most=1, price=prices.load_balancer, usual=1)
    for name in prices.other:
        yield _part(name, "other", name, prices.other, (1, 1, 1))


def _stored(name: str, gib: int, kind: str, prices: Prices, counts: _Counts) -> Part:
    """A volume, whose price an hour comes from that of a GiB a month."""
    hourly = {key: gib * price / HOURS_A_MONTH for key, price in prices.storage.items()}
    return _part(f"{name} {gib:,} GiB", "storage", kind, hourly, counts)


def _part(name: str, table: str, key: str, prices: Mapping[str, float], counts: _Counts) -> Part:
    least, most, usual = counts
    return Part(name=name, key=f"{table}.{key}", least=least, most=most, price=prices.get(key), usual=usual)
