"""What must hold for volumes on any cloud: paths that do not hide each other, data that is where it was meant to be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from config.base import parse_bytes
from config.cluster import Sections
from config.errors import Problem
from config.sections.accounting import Accounting
from config.sections.storage import Jail, Mount
from config.sections.workers import WorkerPool


def mount_problems(sections: Sections) -> Iterator[Problem]:
    """Mounts at one path, and mounts inside other mounts, which would hide what is below them."""
    mounts: Mapping[str, Mount] = sections.get("mounts")
    jail: Jail | None = sections.get("jail")
    paths = {name: PurePosixPath(mount.path) for name, mount in mounts.items()}
    for name, path in paths.items():
        if jail is not None and jail.homes is not None and path == PurePosixPath("/home"):
            yield Problem(f"mounts.{name}.path", "/home is the path of jail.homes; remove one of the two")
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


def filesystem_problems(sections: Sections) -> Iterator[Problem]:
    """File systems of a cloud, in a stack on a cluster that is already there: the data would lie elsewhere."""
    accounting: Accounting | None = sections.get("accounting")
    jail: Jail | None = sections.get("jail")
    volumes = {"jail": jail, "jail.homes": jail and jail.homes, "controller": sections.get("controller")}
    volumes["accounting.database"] = accounting.database if accounting is not None else None
    volumes |= {f"mounts.{name}": mount for name, mount in sections.get("mounts").items()}
    for where, volume in volumes.items():
        if volume is not None and "filesystem" in volume.model_fields_set and volume.filesystem is not None:
            message = "is for clouds with file systems of their own, and this cluster is already there; remove it "
            yield Problem(f"{where}.filesystem", message + "(storage_class chooses the storage)")
