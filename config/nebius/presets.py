"""From platform and preset to what a worker offers: filled in before a stack file is checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from config.nebius.platforms import nebius_catalogue, worker_resources


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
