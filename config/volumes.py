"""The volumes of a stack that hold data, whatever serves them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from config.base import gibibytes
from config.cluster import ClusterConfig
from config.sections.storage import Filesystem


@dataclass(frozen=True, kw_only=True)
class DataVolume:
    """A volume as its section describes it."""

    name: str
    """Key in the stack file: `jail`, `jail.homes`, `controller`, `accounting.database`, `monitoring`, or
    `mounts.<name>`."""
    size_gib: int
    """Capacity in GiB, rounded up."""
    storage_class: str | None
    filesystem: Filesystem | None
    """The shared file system behind it, on a cloud that has them. None: a disk."""


def data_volumes(config: ClusterConfig) -> Iterator[DataVolume]:
    """All of them, in the order in which people are told of them."""
    jail, controller, database = config.jail, config.controller, config.accounting.own_database
    yield _volume("jail", jail.size, jail.storage_class, jail.filesystem)
    if jail.homes is not None:
        yield _volume("jail.homes", jail.homes.size, jail.homes.storage_class, jail.homes.filesystem)
    yield _volume("controller", controller.storage, controller.storage_class, controller.filesystem)
    if database is not None:
        yield _volume("accounting.database", database.storage, database.storage_class, database.filesystem)
    if config.monitoring.install:
        yield _volume("monitoring", config.monitoring.storage, config.monitoring.storage_class, None)
    for name, mount in config.mounts.items():
        yield _volume(f"mounts.{name}", mount.size, mount.storage_class, mount.filesystem)


def _volume(name: str, size: str, storage_class: str | None, filesystem: Filesystem | None) -> DataVolume:
    return DataVolume(name=name, size_gib=gibibytes(size), storage_class=storage_class, filesystem=filesystem)
