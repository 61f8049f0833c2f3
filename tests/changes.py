"""Every kind of change that a stack file allows, made from the models: to add, to change and to take away.

A model that gets a new field gets new changes by itself. Only text that has to look a certain way is listed here.
"""

from __future__ import annotations

import copy
import random
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Le
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from config import ConfigError, load_config
from config.cluster import ClusterConfig

_ABSENT: Any = object()

ELSEWHERE: Mapping[str, str] = {
    "cloud": "another cluster",
    "cluster.namespace": "another cluster",
    "cluster.user_namespaces": "rolls every pod",
    "cluster.priority_class": "needs a PriorityClass, and rolls every pod",
    "worker_nodes.*.priority_class": "needs a PriorityClass",
    "images": "other images than those of this tree",
    "slurm.version": "refused in place",
    "slurm.cluster_name": "refused in place",
    "sssd": "needs a directory server",
    "accounting.database.external": "needs a database server",
    "accounting.database.storage": "a volume cannot shrink back",
    "controller.storage": "a volume cannot shrink back",
    "jail": "a volume cannot shrink back; other classes and file systems are a cloud's",
    "backup": "needs an S3 store",
    "logs": "needs a collector and a server that takes logs",
    "monitoring.existing": "needs the Prometheus operator",
    "mounts": "volumes of a cloud",
    "login.service_type": "needs a load balancer",
    "login.source_ranges": "needs a load balancer",
    "rest.service_type": "needs a load balancer",
    "topology": "needs machines in racks",
    "worker_nodes.*.scratch": "needs a disk of the machine, or a storage class",
    "users.*.uid": "refused by the job that makes users: files belong to numbers",
    "users.*.gid": "the same",
    "groups.*.gid": "the same",
}
"""Sections and fields that one local cluster cannot change, and why. `*` stands for any name."""

ENTRIES: Mapping[str, Mapping[str, Any]] = {
    "worker_nodes": {"extra": {"size": 1, "resources": {"cpus": 1, "memory": "512Mi"}}},
    "partitions": {"extra": {"pools": ["default"]}},
    "users": {"bob": {"uid": 10002, "ssh_authorized_keys": []}},
    "groups": {"team": {"gid": 20001}},
    "accounts": {"physics": {"fairshare": 3}, "biology": {}},
    "qos": {"urgent": {"priority": 10}},
    "reservations": {
        "later": {"start": "2099-01-01T00:00:00", "duration": "1:00:00", "node_count": 1, "users": ["alice"]}
    },
    "licenses": {"matlab": 3},
}
"""What is added to a section of named things."""

TEXTS: Mapping[str, tuple[str, ...]] = {
    "cpu": ("60m", "70m"),
    "cpu_request": ("60m", "70m"),
    "memory": ("300Mi", "600Mi", "1Gi", "2Gi"),
    "shared_memory": ("64Mi", "128Mi"),
    "max_time": ("1:00:00", "2-00:00:00", "UNLIMITED"),
    "default_time": ("10:00", "20:00"),
    "features": ("avx2", "big"),
    "pools": ("default", "extra"),
    "disabled": ("dns", "munge"),
    "report_only": ("disks", "kubernetes"),
    "max_drained": ("20%",),
    "max_unavailable": ("2", "50%"),
    "max_wall": ("2:00:00",),
    "grp_wall": ("100-0",),
    "preempt_exempt_time": ("1:00",),
    "description": ("for the tests",),
    "organization": ("tests",),
    "qos": ("normal", "urgent"),
    "preempt": ("normal",),
    "default_qos": ("normal",),
    "accounts": ("physics", "biology"),
    "parent": ("biology",),
    "members": ("alice",),
    "purge_jobs": ("12months",),
    "runbooks": ("https://git.example.com/slurmstack/docs/runbooks.md",),
}
"""Values for text, and for what lists of text hold, by the field's name."""


@dataclass(frozen=True)
class Change:
    """One edit of a stack file."""

    kind: Literal["add", "change", "remove"]
    path: tuple[str, ...]
    value: Any = _ABSENT

    @property
    def section(self) -> str:
        return self.path[0]

    def __str__(self) -> str:
        where = ".".join(self.path)
        return f"{self.kind} {where}" if self.value is _ABSENT else f"{self.kind} {where}: {self.value!r}"

    def applied(self, sections: Mapping[str, Any]) -> dict[str, Any]:
        """The sections with the change made."""
        changed = copy.deepcopy(dict(sections))
        at = changed
        for part in self.path[:-1]:
            at = at.setdefault(part, {})
        if self.value is _ABSENT:
            at.pop(self.path[-1], None)
        else:
            at[self.path[-1]] = self.value
        return changed


def all_changes(sections: Mapping[str, Any]) -> list[Change]:
    """Every change of a stack that gives a valid one again, in an order that does not change."""
    return [change for change in _candidates(sections) if _valid(change.applied(sections))]


def series(sections: Mapping[str, Any], *, seed: int, count: int) -> Iterator[tuple[Change, dict[str, Any]]]:
    """`count` random changes, each on top of those before, with the sections that result. Sections come up equally."""
    chosen = random.Random(seed)
    current = dict(sections)
    for _ in range(count):
        by_section: dict[str, list[Change]] = {}
        for change in _candidates(current):
            by_section.setdefault(change.section, []).append(change)
        while True:
            change = chosen.choice(by_section[chosen.choice(sorted(by_section))])
            if _valid(result := change.applied(current)) and result != current:
                break
        current = result
        yield change, current


def _valid(sections: Mapping[str, Any]) -> bool:
    try:
        load_config(sections)
    except ConfigError:
        return False
    return True


def _candidates(sections: Mapping[str, Any]) -> Iterator[Change]:
    for name, field in ClusterConfig.model_fields.items():
        yield from _field(field, sections.get(name, _ABSENT), (name,))


def _field(field: FieldInfo, value: Any, path: tuple[str, ...]) -> Iterator[Change]:
    if any(fnmatch(".".join(path), pattern) for pattern in ELSEWHERE):
        return
    if value is not _ABSENT and not field.is_required():
        yield Change("remove", path)
    yield from _of_type(field.annotation, value, path, tuple(field.metadata))


def _of_type(annotation: Any, value: Any, path: tuple[str, ...], metadata: tuple[Any, ...]) -> Iterator[Change]:
    annotation, metadata = _unwrapped(annotation, metadata)
    origin = get_origin(annotation)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield from _of_model(annotation, value, path)
    elif origin is dict and isinstance(value, list):  # names alone stand for names with nothing said of them
        yield from _of_list(str, value, path)
    elif origin is dict:
        yield from _of_map(get_args(annotation)[1], {} if value is _ABSENT else value, path)
    elif origin is tuple:
        yield from _of_list(get_args(annotation)[0], [] if value is _ABSENT else list(value), path)
    else:
        kind: Literal["add", "change"] = "add" if value is _ABSENT else "change"
        for other in _values(annotation, metadata, path):
            if other != value:
                yield Change(kind, path, other)


def _unwrapped(annotation: Any, metadata: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """The type inside `Annotated[...]` and the first one of `A | None` or `A | B`."""
    while True:
        origin = get_origin(annotation)
        if origin is Annotated:
            annotation, *more = get_args(annotation)
            metadata = (*metadata, *more)
        elif origin in (Union, types.UnionType):
            annotation = next(part for part in get_args(annotation) if part is not type(None))
        else:
            return annotation, metadata


def _of_model(model: type[BaseModel], value: Any, path: tuple[str, ...]) -> Iterator[Change]:
    if isinstance(value, int):  # a number alone stands for a map with a count
        yield from (Change("change", path, other) for other in (0, 1, 2) if other != value)
        return
    given = {} if value is _ABSENT or value is None else value
    for name, field in model.model_fields.items():
        yield from _field(field, given.get(name, _ABSENT), (*path, name))


def _of_map(annotation: Any, value: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[Change]:
    for name in sorted(value):
        yield Change("remove", (*path, name))
        yield from _of_type(annotation, value[name], (*path, name), ())
    for name, entry in ENTRIES.get(".".join(path), {}).items():
        if name not in value:
            yield Change("add", (*path, name), entry)


def _of_list(annotation: Any, value: list[Any], path: tuple[str, ...]) -> Iterator[Change]:
    for index in range(len(value)):
        yield Change("change", path, value[:index] + value[index + 1 :])
    for item in _values(*_unwrapped(annotation, ()), path):
        if item not in value:
            yield Change("change" if value else "add", path, [*value, item])


def _values(annotation: Any, metadata: tuple[Any, ...], path: tuple[str, ...]) -> Iterator[Any]:
    """Values that a field may have, as far as they can be told from its type and its name."""
    if annotation is bool:
        yield from (True, False)
    elif get_origin(annotation) is Literal:
        yield from get_args(annotation)
    elif annotation in {int, float}:
        yield from _numbers(annotation, metadata)
    elif annotation is str:
        yield from TEXTS.get(path[-1], ())


def _numbers(annotation: Any, metadata: tuple[Any, ...]) -> Iterator[float]:
    limits = [item for part in metadata for item in (part.metadata if isinstance(part, FieldInfo) else [part])]
    low: Any = next((item.ge for item in limits if isinstance(item, Ge)), 0)
    high: Any = next((item.le for item in limits if isinstance(item, Le)), None)
    for number in (low, low + 1, low + 2):
        if high is None or number <= high:
            yield annotation(number)
