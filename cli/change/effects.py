"""What a change costs people: which data or machines it takes, and whether the stack allows it, or anything can."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cli.change.change import Action, Change, PropertyChange
from cli.change.owner import (
    DATA,
    STATE,
    STATE_CLAIM,
    cluster_name_of,
    differ,
    has_homes,
    image_of,
    is_put_back,
    jail_root_of,
    other_homes,
    other_jail,
    other_name,
    other_state,
    release_of,
)
from cli.errors import Refused
from cli.kubectl.client import annotations_of
from cli.program.values import Resource, same
from config.base import parse_bytes
from config.cluster import ClusterConfig
from config.sections.cloud import NebiusCloud
from slurm.names import CONFIG_MAP, CONTROLLER, HOMES, LOGIN, SIZE_ANNOTATION

_SECTIONS: Mapping[str, str] = {
    STATE_CLAIM: "controller",
    "database-data": "accounting.database",
    "prometheus-data": "monitoring",
}
"""Keys of the stack file that are not called like the volume, and name its size `storage`."""

_COSTS: Mapping[str, str] = {
    "Kubernetes cluster": "everything in Kubernetes is lost: all jobs, the keys, and all volumes but those on file "
    "systems of the cloud",
    "GPU cluster": "the machines of its pools are made anew, and their jobs end",
    "network": "everything in it is made anew",
    "subnet": "everything in it is made anew",
    "address": "users must log in at another address",
    "bucket": "the backups in it are lost",
    "service account": "what acts in its name stops until it has new credentials",
    "access key": "backups stop until they have the new key",
    "RandomBytes": "a key of the cluster is lost: pods trust each other, and users the login nodes, by it",
    "Release": "what it has installed in Kubernetes is removed at once: without drivers from an operator, jobs on GPUs "
    "fail. Drain such pools first",
    "Namespace": f"everything in it is lost: all jobs, {STATE}, the keys",
}

_UNPROTECT = "set `slurmstack:protect: false`, apply that with `up`, and then make this change"


@dataclass(frozen=True, kw_only=True)
class Effect:
    """A change that people should know of before it is made."""

    action: Action
    kind: str
    """What it is, in people's words: `file system`, `PersistentVolumeClaim`."""
    name: str
    because: tuple[PropertyChange, ...]
    """What differs and forces it."""
    cost: str
    """What is lost, or what happens to whom."""
    refused: str
    """Why it is not done, and the way out; empty if it is allowed."""


def effects(changes: Sequence[Change], config: ClusterConfig) -> tuple[Effect, ...]:
    """Those of the changes that cost somebody something, or that cannot be made. `config` is the new stack file."""
    whole = any(item.action == "delete" and item.kind == "Kubernetes cluster" for item in changes)
    judges = (_Judge(change=change, config=config, whole=whole) for change in changes if change.action != "create")
    return tuple(effect for judge in judges if (effect := judge.effect()) is not None)


def refused(found: Iterable[Effect]) -> list[Effect]:
    """What cannot or must not be done."""
    return [effect for effect in found if effect.refused]


def refuse(found: Iterable[Effect]) -> None:
    """Raise Refused if any of these is."""
    if refusals := refused(found):
        listed = "\n".join(f"  {effect.kind} {effect.name}: {effect.refused}" for effect in refusals)
        count = f"{len(refusals)} change{'s' if len(refusals) > 1 else ''}"
        raise Refused(f"the stack file asks for {count} that cannot be made:\n{listed}")


@dataclass(frozen=True, kw_only=True)
class _Judge:
    """One change, and the stack file that asks for it."""

    change: Change
    config: ClusterConfig
    whole: bool
    """Whether the whole cluster goes."""

    @property
    def kind(self) -> str:
        return self.change.kind

    @property
    def in_cloud(self) -> bool:
        return self.change.resource.type.startswith("nebius:")

    def effect(self) -> Effect | None:
        """What people should know of it; None if nothing."""
        action = self.change.action
        if action == "update":
            cost, refused = self._update()
        else:
            cost, refused = self._cost(), self._replace_refused() if action == "replace" else self._delete_refused()
        if not (cost or refused or (self.in_cloud and action != "update")):
            return None
        name, because = self.change.name, self.change.because
        return Effect(action=action, kind=self.kind, name=name, because=because, cost=cost, refused=refused)

    # What it costs

    def _cost(self) -> str:
        was = self.change.before or self.change.resource
        match self.kind:
            case "file system":
                return self._data_cost(f"it stays in the cloud as {was.id or was.name}" if was.retained else "")
            case "PersistentVolumeClaim" | "PersistentVolume":
                spec = was.inputs.get("spec", {})
                static = self.kind == "PersistentVolume" or spec.get("storageClassName") == ""
                return self._data_cost("what lies there stays where it is" if static or was.retained else "")
            case "node group":
                return self._machines_cost()
            case "StatefulSet" | "PodTemplate":
                return self._pods_cost(was)
            case _:
                return _COSTS.get(self.kind, "")

    def _data_cost(self, stays: str) -> str:
        data = DATA.get(self._key(), f"the files of {self._where()}")
        if self.change.action == "replace":
            return f"{data}: {stays}, but pods get an empty one" if stays else f"{data} are lost: the new one is empty"
        return f"{data}: {stays}, without being managed" if stays else f"{data} are lost"

    def _machines_cost(self) -> str:
        pool = self._pool()
        if self.change.action == "replace":
            return f"all machines of {pool or self._key()} are made anew at once, and jobs on them end"
        if pool and pool in self.config.worker_nodes:
            return f"a node group of pool {pool!r} goes with its machines, and jobs on them end"
        return f"the machines of pool {pool!r} go, after the jobs on them" if pool else ""

    def _pods_cost(self, was: Resource) -> str:
        pool = ((was.inputs.get("metadata") or {}).get("labels") or {}).get("slurmstack/pool")
        if self.change.action == "replace":
            return "all its pods are made anew at once"
        if pool is None or pool in self.config.worker_nodes:  # which becomes elastic, or fixed
            return ""
        size, unless = f"{was.inputs.get('spec', {}).get('replicas', 0)} ", ""
        if self.kind == "PodTemplate":
            size, unless = "", " unless they are preemptible"
        return (
            f"pool {pool!r} leaves: its {size}nodes take no more jobs, wait for those that run{unless}, and disappear. "
            "A pool cannot be renamed: another name is another pool"
        )

    # Whether it is allowed

    def _replace_refused(self) -> str:
        if self.change.cause:
            return ""  # what forces it is judged for itself
        never = f"{', '.join(item.path for item in self.change.because)} can never change"
        if self.in_cloud:
            switches = self._switches()
            if not all(switches.values()):
                missing = " and ".join(f"{key}: true" for key, allowed in switches.items() if not allowed)
                return f"{never}. Set it back, or to lose this set {missing}"
        if self.change.resource.protect:
            return f"{never}, and this is protected. Set it back, or to lose this set `slurmstack:protect: false` too"
        return ""

    def _delete_refused(self) -> str:
        was = self.change.resource
        if was.protect:
            return f"it is protected. To really lose it, {_UNPROTECT}"
        if self.kind == "file system" and was.inputs.get("forbidDeletion") and not was.retained:
            return (
                "the cloud itself forbids to delete it. To really lose it, set "
                f"{self._where()}.filesystem.forbid_deletion: false, apply that with `up`, and then make this change"
            )
        # A pool that shrinks drains its workers, but those that stay may be on machines of the group that goes.
        name = self._pool() if self.kind == "node group" else ""
        pool = self.config.worker_nodes.get(name)
        if pool is None or pool.allow_replacement or self.whole:
            return ""
        kept = int(self._key().rpartition("-")[2]) + 1
        return (
            f"workers that stay may be on its machines. Set worker_nodes.{name}.autoscaling.groups to {kept} or more, "
            "apply, and when no worker is on this group's machines lower it with "
            f"worker_nodes.{name}.allow_replacement: true, which ends what still runs there"
        )

    def _switches(self) -> dict[str, bool]:
        """The keys of the stack file that allow to make the resource anew, as they are set."""
        pools = self.config.worker_nodes
        if self.kind == "node group" and (pool := self._pool()) in pools:
            return {f"worker_nodes.{pool}.allow_replacement": pools[pool].allow_replacement}
        if self.kind == "GPU cluster":
            fabric = self.change.resource.inputs.get("infinibandFabric")
            users = {
                f"worker_nodes.{name}.allow_replacement": pool.allow_replacement
                for name, pool in pools.items()
                if pool.gpu_cluster is not None and pool.gpu_cluster.infiniband_fabric == fabric
            }
            if users:
                return users
        cloud = self.config.cloud
        return {"cloud.allow_replacement": isinstance(cloud, NebiusCloud) and cloud.allow_replacement}

    # What is changed in place

    def _update(self) -> tuple[str, str]:
        """What it costs, and why it is refused."""
        cost = refused = ""
        old = self.change.before
        was, will = old.inputs if old else {}, self.change.resource.inputs
        match self.kind, self.change.name:
            case _ if old is None:
                pass
            case (("file system" | "PersistentVolumeClaim"), _):
                refused = self._other_kind(was, will) or self._resize(old, self.change.resource)
            case "node group", _:
                cost = _roll(was, will)
            case "StatefulSet", name if name == LOGIN:
                jail = other_jail(release_of(was), release_of(will), jail_root_of(was), jail_root_of(will))
                refused = other_homes(has_homes(was), has_homes(will)) or jail
            case "StatefulSet", name if name == CONTROLLER and not is_put_back(was):
                cost = _upgrade(release_of(was), release_of(will))
                refused = _same_images(was, will) or other_state(release_of(was), release_of(will))
            case "ConfigMap", name if name == CONFIG_MAP:
                refused = other_name(cluster_name_of(was), cluster_name_of(will))
        return cost, refused

    def _resize(self, was: Resource, will: Resource) -> str:
        (before, old), (after, new) = map(_size, (was, will))
        key = f"{self._where()}.{'storage' if self._key() in _SECTIONS else 'size'}"
        if old is None or new is None or new == old:
            return ""
        if new < old:
            return (
                f"{key}: {after} is less than the {before} that it has, and it cannot shrink. "
                f"Set it back to {before}. To really have a smaller one: {self._another_volume()}"
            )
        if was.inputs.get("spec", {}).get("storageClassName") != "":
            return ""
        return (
            f"{key}: the volume is a directory, with all the space of its disk whatever its size says, and Kubernetes "
            f"never changes that size. Set it back to {before}"
        )

    def _other_kind(self, was: Mapping[str, Any], will: Mapping[str, Any]) -> str:
        """A claim keeps the class that it was made with, and how many machines may mount it."""
        section, before, after = self._where(), was.get("spec", {}), will.get("spec", {})
        keys = {"storageClassName": f"{section}.storage_class", "accessModes": f"{section}.access_mode"}
        for path, key in keys.items() if self.kind == "PersistentVolumeClaim" else ():
            old, new = before.get(path), after.get(path)
            if old is not None and old != new and (new is not None or _has_set(was, path)):
                shown = ", ".join(old) if isinstance(old, list) else old
                back = f"Set it back to {shown}" if old else "Remove this key"
                never = f"{key}: the volume's {path} is {shown!r}, and that can never change. {back}"
                return f"{never}. To really have another one: {self._another_volume()}"
        return ""

    def _another_volume(self) -> str:
        """How people come from one volume to another: never by a destroy with all data, as mounts have no backup."""
        if self._key().startswith("mount-"):
            return "add another mount, copy the data, and then remove this one"
        if self.kind == "PersistentVolumeClaim":
            return 'docs/backups.md, "Another volume", makes this one anew and leaves all other data alone'
        return "make another cluster, in a namespace of its own, and copy the data"

    # Names

    def _key(self) -> str:
        """The resource's name without the cluster's: `jail`, `mount-data`, `default-0`."""
        cloud, namespace = self.config.cloud, self.config.cluster.namespace
        named = cloud.name if self.in_cloud and isinstance(cloud, NebiusCloud) else None
        return self.change.name.removeprefix(f"{named or namespace}-")

    def _where(self) -> str:
        """The key of the stack file that describes the volume."""
        key = self._key()
        if key.startswith("mount-"):
            return f"mounts.{key.removeprefix('mount-')}"
        return "jail.homes" if key == HOMES else _SECTIONS.get(key, key)

    def _pool(self) -> str:
        """The worker pool of a node group; empty for our own roles."""
        match = re.fullmatch(r"(.+)-\d+", self._key())
        return match.group(1) if match else ""


def _has_set(claim: Mapping[str, Any], key: str) -> bool:
    """Whether an apply has set this. Kubernetes' default is kept where nobody asks for any."""
    entries = [item for item in claim["metadata"].get("managedFields", []) if item.get("operation") == "Apply"]
    return any(f"f:{key}" in item.get("fieldsV1", {}).get("f:spec", {}) for item in entries)


def _size(resource: Resource) -> tuple[str, int | None]:
    """Capacity as it is written, and in bytes; None if nobody can tell."""
    if not resource.type.startswith("kubernetes:"):
        size = resource.inputs.get("sizeGibibytes")
        return f"{size}Gi", int(size) * 2**30 if size else None
    quantity = resource.inputs.get("spec", {}).get("resources", {}).get("requests", {}).get("storage")
    on_file_system = SIZE_ANNOTATION in annotations_of(resource.inputs)  # of the cloud, which is judged for itself
    if on_file_system or not isinstance(quantity, str):
        return "", None
    return quantity, int(quantity) if quantity.isdigit() else parse_bytes(quantity)


def _roll(was: Mapping[str, Any], will: Mapping[str, Any]) -> str:
    """A node group takes another template by replacing its machines; labels and taints reach new ones only."""
    old, new = ({**(item.get("template") or {}), "version": item.get("version")} for item in (was, will))
    if all(same(old.get(name), new.get(name)) for name in {*old, *new} - {"metadata", "taints"}):
        return ""
    at_once = (will.get("strategy") or {}).get("maxUnavailable") or {}
    many = at_once.get("count") or f"{at_once.get('percent', '?')} %"
    return f"its machines are made anew, {many} at a time: each takes no more jobs and waits for those that run"


def _upgrade(old: str, new: str) -> str:
    if not differ(old, new) or new < old:
        return ""
    return f"slurmdbd converts the database to Slurm {new}, slurmctld its state: only a backup takes that back"


def _same_images(was: Mapping[str, Any], will: Mapping[str, Any]) -> str:
    """Images of another release by the digests of before: these were not pinned anew."""
    old, new = release_of(was), release_of(will)
    if not differ(old, new) or image_of(was) != image_of(will):
        return ""
    return (
        f"images.digests: they are those of Slurm {old}, and slurm.version is {new}: `slurmstack images build` and "
        "`slurmstack images push --pin` give those of it"
    )
