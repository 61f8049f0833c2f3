"""The cloud's platforms and presets, from the tables in `config/nebius/platforms.yaml`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

_NEBIUS = Path(__file__).resolve().parent / "platforms.yaml"


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A size of machine."""

    vcpus: int
    memory_gib: int
    gpus: int
    fabric: bool
    """Whether such machines can be in a GPU cluster."""


@dataclass(frozen=True, kw_only=True)
class Platform:
    """A kind of machine."""

    name: str
    arch: str
    regions: tuple[str, ...]
    presets: Mapping[str, Preset]


@dataclass(frozen=True, kw_only=True)
class Catalogue:
    """What a cloud offers."""

    regions: tuple[str, ...]
    platforms: Mapping[str, Platform]

    def preset(self, platform: str, preset: str) -> Preset | None:
        """The size of machine, where there is such a one."""
        return self.platforms[platform].presets.get(preset) if platform in self.platforms else None


@cache
def nebius_catalogue() -> Catalogue:
    """What the Nebius cloud offers, as of the date in the table."""
    table: dict[str, Any] = yaml.safe_load(_NEBIUS.read_text(encoding="utf-8"))
    return Catalogue(
        regions=tuple(table["regions"]),
        platforms={name: _platform(name, row) for name, row in table["platforms"].items()},
    )


def _platform(name: str, row: Mapping[str, Any]) -> Platform:
    presets = {
        preset: Preset(vcpus=vcpus, memory_gib=memory, gpus=gpus, fabric=preset in row.get("fabric", ()))
        for preset, (vcpus, memory, gpus) in row["presets"].items()
    }
    return Platform(name=name, arch=row.get("arch", "amd64"), regions=tuple(row["regions"]), presets=presets)


def worker_resources(preset: Preset) -> dict[str, Any]:
    """`resources` of a worker that fills a machine of this preset.

    Two CPUs (both threads of one core) are left to the machine, and 5 % of the memory and 2 GiB more: what the kubelet,
    the system and the cluster's own pods on every machine take. The vendor's recipe leaves one CPU and the same memory;
    with less left, its worker pods never fitted.
    """
    return {
        "cpus": max(1, preset.vcpus - 2),
        "memory": f"{max(1, int(preset.memory_gib * 0.95 - 2))}Gi",
        "gpus": preset.gpus,
    }


def with_resources(sections: Mapping[str, Any]) -> Mapping[str, Any]:
    """The sections with `resources` of each pool computed from its preset, where the cloud makes the machines.

    What the pool itself says in `resources` wins, key by key. An unknown platform or preset is left alone here; the
    check of the whole names it.
    """
    cloud, pools = sections.get("cloud"), sections.get("worker_nodes")
    if not (isinstance(cloud, Mapping) and cloud.get("kind") == "nebius" and isinstance(pools, Mapping)):
        return sections
    return {**sections, "worker_nodes": {name: _filled(pool) for name, pool in pools.items()}}


def _filled(pool: Any) -> Any:
    if not isinstance(pool, Mapping):
        return pool
    preset = nebius_catalogue().preset(str(pool.get("platform")), str(pool.get("preset")))
    written = pool.get("resources", {})
    if not isinstance(written, Mapping):
        return pool
    # A placeholder keeps the one message about the platform from being joined by others about resources.
    computed = worker_resources(preset) if preset else {"cpus": 4096, "memory": "1Pi", "gpus": 0}
    gpus = written.get("gpus")
    counted = {"gpus": {"count": computed["gpus"], **gpus}} if isinstance(gpus, Mapping) else {}
    return {**pool, "resources": {**computed, **written, **counted}}
