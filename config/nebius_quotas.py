"""What a stack takes of a Nebius project, against the quotas that the stack file states."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import ceil

from config.base import parse_bytes
from config.errors import Problem, unknown_name
from config.machines import CountOrPercent
from config.nebius import NebiusCloud, SystemNodes
from config.platforms import Catalogue, Preset
from config.workers import WorkerPool

GIBIBYTE = 2**30


@dataclass(frozen=True, kw_only=True)
class Machines:
    """Machines of one kind, and how many there can be at once: those of an update (`max_surge`) are among them."""

    name: str
    """The pool, or the key of the role."""
    platform: str
    preset: Preset
    count: int
    disk_gib: int
    """Boot disk of one machine."""
    counted: bool = True
    """Whether their GPUs count against the quota: reserved ones do not."""


def pool_machines(pools: Mapping[str, WorkerPool], catalogue: Catalogue) -> Iterator[Machines]:
    """Machines of the pools whose platform and preset are known."""
    for name, pool in pools.items():
        platform = catalogue.platforms.get(str(pool.platform))
        preset = platform.presets.get(str(pool.preset)) if platform else None
        if platform is None or preset is None:
            continue
        yield Machines(
            name=name,
            platform=platform.name,
            preset=preset,
            count=_at_once(pool),
            disk_gib=_gib(pool.boot_disk.size),
            counted=pool.reservation is None or pool.reservation.policy != "STRICT",
        )


def role_machines(roles: Mapping[str, SystemNodes], logins: int, catalogue: Catalogue) -> Iterator[Machines]:
    """Machines of our own roles at most, where platform and preset are known."""
    for name, nodes in roles.items():
        platform = catalogue.platforms.get(nodes.platform)
        preset = platform.presets.get(nodes.preset) if platform else None
        if platform is None or preset is None:
            continue
        pods = {"controller_nodes": 1, "login_nodes": logins}.get(name, nodes.max_size)
        yield Machines(
            name=name,
            platform=nodes.platform,
            preset=preset,
            count=max(nodes.min_size, min(pods, nodes.max_size)),
            disk_gib=_gib(nodes.boot_disk.size),
        )


def quota_problems(
    cloud: NebiusCloud, machines: Iterable[Machines], filesystem_sizes: Mapping[str, str], catalogue: Catalogue
) -> Iterator[Problem]:
    """What is more than a quota that the stack states. `filesystem_sizes`: new file systems by their place."""
    items, quotas = tuple(machines), cloud.quotas
    for platform, most in quotas.gpus.items():
        where = f"cloud.quotas.gpus.{platform}"
        if platform not in catalogue.platforms:
            yield Problem(where=where, message=unknown_name(platform, catalogue.platforms, what="a platform"))
            continue
        gpus = {
            item.name: item.count * item.preset.gpus
            for item in items
            if item.platform == platform and item.counted and item.count
        }
        yield from _over(where, gpus, most, what="GPUs")
    yield from _over("cloud.quotas.nodes", {item.name: item.count for item in items}, quotas.nodes, what="machines")
    vcpus = {item.name: item.count * item.preset.vcpus for item in items if not item.preset.gpus}
    yield from _over("cloud.quotas.vcpus", vcpus, quotas.vcpus, what="virtual CPUs")
    disks = {item.name: item.count * item.disk_gib for item in items}
    yield from _over("cloud.quotas.disk_size", disks, _most_gib(quotas.disk_size), what="GiB of boot disks")
    sizes = {where: _gib(size) for where, size in filesystem_sizes.items()}
    most_size = _most_gib(quotas.filesystem_size)
    yield from _over("cloud.quotas.filesystem_size", sizes, most_size, what="GiB of file systems")


def _over(where: str, needed: Mapping[str, int], most: int | None, *, what: str) -> Iterator[Problem]:
    total = sum(needed.values())
    if most is not None and total > most:
        parts = ", ".join(f"{name} {amount:,}" for name, amount in needed.items() if amount)
        message = f"the stack takes {total:,} {what} ({parts}) and the quota is {most:,}; ask for more, or take less"
        yield Problem(where=where, message=message)


def _at_once(pool: WorkerPool) -> int:
    groups = pool.node_groups
    count = max(pool.size, groups * pool.autoscaling.min_size)
    return count + (groups * _surge(pool.update_strategy.max_surge, ceil(count / groups)) if count else 0)


def _surge(amount: CountOrPercent, size: int) -> int:
    return amount if isinstance(amount, int) else ceil(size * int(amount.removesuffix("%")) / 100)


def _gib(size: str) -> int:
    return ceil(parse_bytes(size) / GIBIBYTE)


def _most_gib(size: str | None) -> int | None:
    return None if size is None else parse_bytes(size) // GIBIBYTE
