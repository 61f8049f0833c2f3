"""What must hold for prices: what they name is there, and is paid for in this stack in that way."""

from __future__ import annotations

from collections.abc import Iterator

from config.errors import Problem, unknown_name
from config.nebius.cloud import NebiusCloud
from config.nebius.platforms import nebius_catalogue
from config.rules.stack_file import Sections
from config.sections.prices import CLOUD_STORAGE, Prices


def price_problems(sections: Sections) -> Iterator[Problem]:
    """Pools that are not there, machines that nobody offers, and prices of what this stack cannot have."""
    prices: Prices | None = sections.get("prices")
    cloud = sections.get("cloud")
    if prices is None:
        return
    pools = sections.names("worker_nodes")
    for name in prices.pools:
        if name not in pools:
            yield Problem(f"prices.pools.{name}", unknown_name(name, pools, what="a pool of worker_nodes"))
    if isinstance(cloud, NebiusCloud):
        yield from _machines(prices)
    elif cloud is not None:
        others = "is of clouds that make machines (cloud.kind: nebius); "
        for name in prices.machines:
            yield Problem(f"prices.machines.{name}", f"{others}write the price of a pool's node in prices.pools")
        for name in set(prices.storage).intersection(CLOUD_STORAGE):
            yield Problem(f"prices.storage.{name}", f"{others}write the name of a storage class, or default")


def _machines(prices: Prices) -> Iterator[Problem]:
    platforms = nebius_catalogue().platforms
    for name in prices.machines:
        platform, preset = name.split("/")[:2]
        where = f"prices.machines.{name}"
        if platform not in platforms:
            yield Problem(where, unknown_name(platform, platforms, what="a platform"))
        elif preset not in platforms[platform].presets:
            yield Problem(where, unknown_name(preset, platforms[platform].presets, what=f"a preset of {platform}"))
