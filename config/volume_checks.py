"""What must hold for volumes and machines on any cloud: paths that do not hide each other, keys that have an effect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from config.base import parse_bytes
from config.errors import Problem
from config.machines import Machines
from config.storage import Mount
from config.workers import WorkerPool


def mount_problems(mounts: Mapping[str, Mount]) -> Iterator[Problem]:
    """Mounts at one path, and mounts inside other mounts, which would hide what is below them."""
    paths = {name: PurePosixPath(mount.path) for name, mount in mounts.items()}
    for name, path in paths.items():
        for other, parent in paths.items():
            where = f"mounts.{name}.path"
            if path == parent and name > other:
                yield Problem(where=where, message=f"{path} is the path of the mount {other!r} already")
            elif parent in path.parents:
                message = f"{path} is inside {parent}, the path of the mount {other!r}; mounts cannot be nested"
                yield Problem(where=where, message=message)


def shared_memory_problems(pools: Mapping[str, WorkerPool]) -> Iterator[Problem]:
    """`/dev/shm` is part of the pod's memory."""
    for name, pool in pools.items():
        if pool.shared_memory is not None and parse_bytes(pool.shared_memory) > parse_bytes(pool.resources.memory):
            message = (
                f"{pool.shared_memory} is more than the pod's memory of {pool.resources.memory}, of which it is part"
            )
            yield Problem(where=f"worker_nodes.{name}.shared_memory", message=message)


_IGNORED = "has no effect on a cluster that is already there, only with cloud.kind nebius; remove it"


def ignored_problems(valid: Mapping[str, Any]) -> Iterator[Problem]:
    """Keys for clouds that make machines and file systems, in a stack on a cluster that is already there."""
    for name, pool in (valid.get("worker_nodes") or {}).items():
        for field in sorted(pool.model_fields_set & Machines.model_fields.keys()):
            message = f"{_IGNORED} (node_selector and tolerations choose machines)"
            yield Problem(where=f"worker_nodes.{name}.{field}", message=message)
    volumes = {"jail": valid.get("jail"), "controller": valid.get("controller")}
    volumes |= {f"mounts.{name}": mount for name, mount in (valid.get("mounts") or {}).items()}
    for where, volume in volumes.items():
        if volume is not None and "filesystem" in volume.model_fields_set and volume.filesystem is not None:
            message = f"{_IGNORED} (storage_class chooses the storage)"
            yield Problem(where=f"{where}.filesystem", message=message)
