"""What must hold for volumes and machines on any cloud: paths that do not hide each other, keys that have an effect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from config.base import parse_bytes
from config.errors import Problem
from config.rules.stack_file import Sections
from config.sections.accounting import Accounting
from config.sections.machines import Machines
from config.sections.storage import Mount
from config.sections.workers import WorkerPool


def mount_problems(sections: Sections) -> Iterator[Problem]:
    """Mounts at one path, and mounts inside other mounts, which would hide what is below them."""
    mounts: Mapping[str, Mount] = sections.get("mounts")
    paths = {name: PurePosixPath(mount.path) for name, mount in mounts.items()}
    for name, path in paths.items():
        for other, parent in paths.items():
            where = f"mounts.{name}.path"
            if path == parent and name > other:
                yield Problem(where, f"{path} is the path of the mount {other!r} already")
            elif parent in path.parents:
                message = f"{path} is inside {parent}, the path of the mount {other!r}; mounts cannot be nested"
                yield Problem(where, message)


def shared_memory_problems(sections: Sections) -> Iterator[Problem]:
    """`/dev/shm` is part of the pod's memory."""
    pools: Mapping[str, WorkerPool] = sections.get("worker_nodes")
    for name, pool in pools.items():
        if pool.shared_memory is not None and parse_bytes(pool.shared_memory) > parse_bytes(pool.resources.memory):
            message = (
                f"{pool.shared_memory} is more than the pod's memory of {pool.resources.memory}, of which it is part"
            )
            yield Problem(f"worker_nodes.{name}.shared_memory", message)


_IGNORED = "has no effect on a cluster that is already there, only with cloud.kind nebius; remove it"


def ignored_problems(sections: Sections) -> Iterator[Problem]:
    """Keys for clouds that make machines and file systems, in a stack on a cluster that is already there."""
    for name, pool in sections.get("worker_nodes").items():
        for field in sorted(pool.model_fields_set & Machines.model_fields.keys()):
            yield Problem(f"worker_nodes.{name}.{field}", f"{_IGNORED} (node_selector and tolerations choose machines)")
    accounting: Accounting | None = sections.get("accounting")
    volumes = {"jail": sections.get("jail"), "controller": sections.get("controller")}
    volumes["accounting.database"] = accounting.database if accounting is not None else None
    volumes |= {f"mounts.{name}": mount for name, mount in sections.get("mounts").items()}
    for where, volume in volumes.items():
        if volume is not None and "filesystem" in volume.model_fields_set and volume.filesystem is not None:
            yield Problem(f"{where}.filesystem", f"{_IGNORED} (storage_class chooses the storage)")
