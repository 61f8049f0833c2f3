"""The parts of a stack that are paid for: how many there can be, and the price of one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import fsum

from config.base import gibibytes
from config.cluster import ClusterConfig
from config.nebius.cloud import NebiusCloud
from config.nebius.needs import STATE_DISK_TYPE, needs
from config.sections.prices import DEFAULT_CLASS, Prices
from config.volumes import data_volumes

HOURS_A_MONTH = 730
"""Hours of a month in clouds' price lists: the twelfth part of 365 days."""


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


@dataclass(frozen=True)
class Cost:
    """What a stack costs. What has no price is left out of the sums: they are then what it costs at least."""

    currency: str
    parts: tuple[Part, ...]

    @cached_property
    def least(self) -> float:
        """An hour of the stack at its smallest."""
        return fsum(part.least * (part.price or 0) for part in self.parts)

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
    return Cost(prices.currency, tuple(part for part in parts if part.most))


def _machines(config: ClusterConfig, prices: Prices) -> Iterator[Part]:
    for item in needs(config).nodes:
        name, counts = item.pool or item.role, (item.count, item.most)
        kind = f"{item.platform}/{item.preset}"
        if item.pool is not None and config.worker_nodes[item.pool].preemptible:
            kind += "/preemptible"
        if item.pool in prices.pools:
            yield _part(name, "pools", name, prices.pools, counts)
        else:
            yield _part(name, "machines", kind, prices.machines, counts)
        yield _stored(f"{name} boot disk", item.disk_gib, f"disk/{item.disk_type}", prices, counts)


def _nodes(config: ClusterConfig, prices: Prices) -> Iterator[Part]:
    """Workers on machines that somebody else made: what a node of the pool costs is all that can be known."""
    for name, pool in config.worker_nodes.items():
        yield _part(
            name, "pools", name, prices.pools, (pool.least + pool.warm_machines, pool.most + pool.warm_machines)
        )


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
        yield _stored(volume.name, volume.size_gib, kind, prices, (1, 1))
    for name, pool in config.worker_nodes.items():
        if pool.scratch is not None and pool.scratch.storage_class is not None:
            size, counts = gibibytes(pool.scratch.size), (pool.least, pool.most)
            yield _stored(f"{name} scratch", size, pool.scratch.storage_class, prices, counts)


def _others(config: ClusterConfig, prices: Prices) -> Iterator[Part]:
    services = {"login": config.login.service_type, "rest": config.rest.enabled and config.rest.service_type}
    for name, kind in services.items():
        if kind == "LoadBalancer":
            balancer, key = f"{name} load balancer", "load_balancer"
            yield Part(name=balancer, key=key, least=1, most=1, price=prices.load_balancer)
    for name in prices.other:
        yield _part(name, "other", name, prices.other, (1, 1))


def _stored(name: str, gib: int, kind: str, prices: Prices, counts: tuple[int, int]) -> Part:
    """A volume, whose price an hour comes from that of a GiB a month."""
    hourly = {key: gib * price / HOURS_A_MONTH for key, price in prices.storage.items()}
    return _part(f"{name} {gib:,} GiB", "storage", kind, hourly, counts)


def _part(name: str, table: str, key: str, prices: Mapping[str, float], counts: tuple[int, int]) -> Part:
    least, most = counts
    return Part(name=name, key=f"{table}.{key}", least=least, most=most, price=prices.get(key))
