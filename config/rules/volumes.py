"""What must hold for volumes and machines on any cloud: paths that do not hide each other, keys that have an effect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from config.base import parse_bytes
from config.errors import Problem
from config.rules.stack_file import Sections
from config.sections.accounting import Accounting
from config.sections.jail import Jail
from config.sections.machines import Machines
from config.sections.storage import Mount
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


def root_problems(sections: Sections) -> Iterator[Problem]:
    """What is carried into a root that is not named, from itself, or to where a mount hides it."""
    jail: Jail | None = sections.get("jail")
    if jail is None:
        return
    if jail.carry and jail.root is None:
        message = "is what a new root gets from another one, and none is named; set jail.root, or remove this"
        yield Problem("jail.carry", message)
    if jail.carry_from is not None and not jail.carry:
        yield Problem("jail.carry_from", "has no effect without jail.carry; name paths there, or remove this")
    if jail.carry_from is not None and jail.carry_from == jail.root:
        message = f"is the root itself, {jail.root!r}; name another one, or leave it out for the first one"
        yield Problem("jail.carry_from", message)
    for path in jail.carry:
        for name, mount in sections.get("mounts").items():
            if PurePosixPath(mount.path) in (PurePosixPath(path), *PurePosixPath(path).parents):
                yield Problem("jail.carry", f"{path} is on the mount {name!r}, which all roots see; remove it here")


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
        for field in sorted(pool.model_fields_set & Machines.model_fields.keys() - {"preemptible"}):
            yield Problem(f"worker_nodes.{name}.{field}", f"{_IGNORED} (node_selector and tolerations choose machines)")
        if pool.preemptible and not pool.is_elastic:
            message = f"does nothing for a pool of a fixed size; write size: {{min: 0, max: {pool.most}}}, or remove it"
            yield Problem(f"worker_nodes.{name}.preemptible", message)
    accounting: Accounting | None = sections.get("accounting")
    jail: Jail | None = sections.get("jail")
    volumes = {"jail": jail, "jail.homes": jail and jail.homes, "controller": sections.get("controller")}
    volumes["accounting.database"] = accounting.database if accounting is not None else None
    volumes |= {f"mounts.{name}": mount for name, mount in sections.get("mounts").items()}
    for where, volume in volumes.items():
        if volume is not None and "filesystem" in volume.model_fields_set and volume.filesystem is not None:
            yield Problem(f"{where}.filesystem", f"{_IGNORED} (storage_class chooses the storage)")
