"""What a change costs people: which data or machines it takes, and whether the stack allows it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cli.changes import Action, PropertyChange
from cli.refusals import HEALTH_LEAVES, NAME_IS_KEPT, cluster_name_of, keep_name, release_of
from cli.replacements import Recorded, ResourceChange, plain, same
from config.base import parse_bytes
from config.cluster import ClusterConfig
from config.nebius import NebiusCloud
from slurm import names
from slurm.health import WATCH
from slurm.names import SIZE_ANNOTATION

_KINDS: Mapping[str, str] = {
    "Mk8sV1Cluster": "Kubernetes cluster",
    "Mk8sV1NodeGroup": "node group",
    "ComputeV1Filesystem": "file system",
    "ComputeV1GpuCluster": "GPU cluster",
    "VpcV1Network": "network",
    "VpcV1Subnet": "subnet",
    "VpcV1Allocation": "address",
    "StorageV1Bucket": "bucket",
    "IamV1ServiceAccount": "service account",
    "IamV2AccessKey": "access key",
    "IamV1AuthPublicKey": "public key",
    "IamV1Group": "group",
    "IamV1GroupMembership": "group membership",
    "IamV1AccessPermit": "access permit",
}
"""Types of cloud resources as people call them."""

_STATE = "the job queue and Slurm's other state"
_DATA: Mapping[str, str] = {
    "jail": "all users' files and the software in the jail",
    "controller-state": _STATE,
    "database-data": "the records of all jobs, and the accounts, QOS and users in them",
}

_SECTIONS: Mapping[str, str] = {"controller-state": "controller", "database-data": "accounting.database"}
"""Keys of the stack file that are not called like the volume."""

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
    "Namespace": f"everything in it is lost: all jobs, {_STATE}, the keys",
}

_SIZES: Mapping[str, int] = {"sizeBytes": 1, "sizeKibibytes": 2**10, "sizeMebibytes": 2**20, "sizeGibibytes": 2**30}
"""Inputs that hold a file system's size, with their units in bytes; it has one of them."""

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

    def as_data(self) -> dict[str, Any]:
        """The effect for scripts."""
        return asdict(self)


def effects(changes: Sequence[ResourceChange], config: ClusterConfig) -> list[Effect]:
    """Those of the changes that cost somebody something, or that cannot be made. `config` is the new stack file."""
    whole = any(item.action == "delete" and kind_of(item.resource.type) == "Kubernetes cluster" for item in changes)
    return [effect for change in changes if (effect := _Judge(change, config, whole=whole).effect()) is not None]


def kind_of(type_: str) -> str:
    """A resource type in people's words."""
    short = type_.rsplit(":", 1)[1]
    return _KINDS.get(short, short)


def name_of(resource: Recorded) -> str:
    """What people call a resource: a Kubernetes object's or cloud resource's own name, else the program's."""
    named = resource.inputs.get("metadata") if resource.type.startswith("kubernetes:") else resource.inputs
    return str((named or {}).get("name") or resource.name)


class _Judge:
    """One change, and the stack file that asks for it; `whole` if the whole cluster goes."""

    def __init__(self, change: ResourceChange, config: ClusterConfig, *, whole: bool) -> None:
        self.change = change
        self.config = config
        self.whole = whole
        self.kind = kind_of(change.resource.type)
        self.in_cloud = change.resource.type.startswith("nebius:")

    def effect(self) -> Effect | None:
        """What people should know of it; None if nothing."""
        match self.change.action:
            case "create":
                return None
            case "update":
                return self._update()
            case "replace":
                cost, refused, because = self._cost(), self._replace_refused(), self.change.properties
            case "delete":
                cost, refused, because = self._cost(), self._delete_refused(), ()
        return self._effect(cost, refused, because) if cost or refused or self.in_cloud else None

    def _effect(self, cost: str, refused: str, because: tuple[PropertyChange, ...]) -> Effect:
        return Effect(
            action=self.change.action, kind=self.kind, name=self._name(), because=because, cost=cost, refused=refused
        )

    def _name(self) -> str:
        return name_of(self.change.resource)

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
            case "Deployment" if self.change.action == "delete" and self._name() == WATCH and not self.whole:
                return HEALTH_LEAVES
            case "StatefulSet":
                return self._pods_cost(was)
            case _:
                return _COSTS.get(self.kind, "")

    def _data_cost(self, stays: str) -> str:
        data = _DATA.get(self._key(), f"the files of {self._where()}")
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

    def _pods_cost(self, was: Recorded) -> str:
        pool = ((was.inputs.get("metadata") or {}).get("labels") or {}).get("slurmstack/pool")
        if self.change.action == "replace":
            return "all its pods are made anew at once"
        if pool is None:
            return ""
        size = was.inputs.get("spec", {}).get("replicas", 0)
        return (
            f"pool {pool!r} leaves: its {size} nodes take no more jobs, wait for those that run, and disappear. "
            "A pool cannot be renamed: another name is another pool"
        )

    # Whether it is allowed

    def _replace_refused(self) -> str:
        if self.change.cause:
            return ""  # what forces it is judged for itself
        if self.in_cloud:
            switches = self._switches()
            if not all(switches.values()):
                missing = " and ".join(f"{key}: true" for key, allowed in switches.items() if not allowed)
                return f"{self._properties()} can never change. Set it back, or to lose this set {missing}"
        if self.change.resource.protect:
            what = f"{self._properties()} can never change, and this is protected"
            return f"{what}. Set it back, or to lose this set `slurmstack:protect: false` too"
        return self._name_taken()

    def _delete_refused(self) -> str:
        was = self.change.resource
        if was.protect:
            return f"it is protected. To really lose it, {_UNPROTECT}"
        if self.kind == "node group":
            return self._group_refused()
        if self.kind != "file system" or was.retained or not was.inputs.get("forbidDeletion"):
            return ""
        return (
            "the cloud itself forbids to delete it. To really lose it, set "
            f"{self._where()}.filesystem.forbid_deletion: false, apply that with `up`, and then make this change"
        )

    def _group_refused(self) -> str:
        """A pool that shrinks drains its workers, but those that stay may be on machines of the group that goes."""
        name = self._pool()
        pool = self.config.worker_nodes.get(name)
        if pool is None or pool.allow_replacement or self.whole:
            return ""
        kept = int(self._key().rpartition("-")[2]) + 1
        return (
            f"workers that stay may be on its machines. Set worker_nodes.{name}.autoscaling.groups to {kept} or more, "
            "apply, and lower it when `kubectl get nodes` shows none of this group; or to end the jobs set "
            f"worker_nodes.{name}.allow_replacement: true"
        )

    def _name_taken(self) -> str:
        """A file system that the cloud keeps keeps its name too, and names are unique in a project.

        Pulumi goes by what its state says of the old one, so it does not help to change that in the same update.
        """
        was = self.change.before
        if self.kind != "file system" or was is None or not (was.retained or was.inputs.get("forbidDeletion")):
            return ""
        return (
            "the cloud keeps the old one, whose name the new one needs. To lose it, set "
            f"{self._where()}.filesystem.forbid_deletion: false beside cloud.allow_replacement: true, apply that with "
            "`up`, and then make this change"
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

    def _properties(self) -> str:
        return ", ".join(item.path for item in self.change.properties)

    # Changes in place that cannot be made

    def _update(self) -> Effect | None:
        was, will = self.change.before, self.change.resource
        if was is None:
            return None
        if self.kind in {"file system", "PersistentVolumeClaim"}:
            return self._resize(_size(was), _size(will))
        if self.kind == "Kubernetes cluster":
            return self._upgrade(_version(was), _version(will))
        if self.kind == "node group":
            return self._roll(was, will)
        return self._other_cluster(was.inputs, will.inputs)

    def _roll(self, was: Recorded, will: Recorded) -> Effect | None:
        """A node group takes another template by replacing its machines; labels and taints reach new ones only."""
        old, new = ({**_template(item), "version": item.inputs.get("version")} for item in (was, will))
        because = tuple(
            PropertyChange(
                path=f"template.{name}" if name != "version" else name,
                old=plain(old.get(name)),
                new=plain(new.get(name)),
            )
            for name in sorted({*old, *new} - {"metadata", "taints"})
            if not same(old.get(name), new.get(name))
        )
        if not because:
            return None
        at_once = (will.inputs.get("strategy") or {}).get("maxUnavailable") or {}
        many = at_once.get("count") or f"{at_once.get('percent', '?')} %"
        return self._effect(
            f"its machines are made anew, {many} at a time: each takes no more jobs and waits for those that run",
            "",
            because,
        )

    def _other_cluster(self, was: Mapping[str, Any], will: Mapping[str, Any]) -> Effect | None:
        """Another release or name of Slurm does not fit to the jail and the state that are there."""
        match self.kind, self._name():
            case "StatefulSet", names.CONTROLLER:
                return self._other_slurm(release_of(was), release_of(will))
            case "ConfigMap", names.CONFIG_MAP:
                return self._other_name(cluster_name_of(was), cluster_name_of(will))
        return None

    def _other_slurm(self, old: str, new: str) -> Effect | None:
        if not old or not new or old == new:
            return None
        because = (PropertyChange(path="slurm.version", old=old, new=new),)
        refused = (
            f"slurm.version: the jail was filled with Slurm {old}, and daemons of {new} would not fit to it. Set it "
            f"back to {old}; changing the release of a cluster in place is not supported yet"
        )
        return self._effect("", refused, because)

    def _other_name(self, old: str, new: str) -> Effect | None:
        if not old or not new or old == new:
            return None
        because = (PropertyChange(path="slurm.cluster_name", old=old, new=new),)
        return self._effect("", f"{NAME_IS_KEPT.format(old=old, new=new)}; {keep_name(old)}", because)

    def _resize(self, old: int | None, new: int | None) -> Effect | None:
        if old is None or new is None or new >= old:
            return None
        because = (PropertyChange(path="size", old=_quantity(old), new=_quantity(new)),)
        refused = (
            f"{self._where()}: {_quantity(new)} is less than the {_quantity(old)} that it has, and it cannot shrink. "
            f"Set it back to {_quantity(old)}. To really have a smaller one: add a mount of that size, "
            "copy the data, and then remove this one"
        )
        return self._effect("", refused, because)

    def _upgrade(self, old: str, new: str) -> Effect | None:
        before, after = _minor(old), _minor(new)
        if before is None or after is None or after in {before, before + 1}:
            return None
        direction = "back" if after < before else "by more than one minor version"
        because = (PropertyChange(path="controlPlane.version", old=old, new=new),)
        refused = f"cloud.kubernetes.version: Kubernetes cannot go {direction}. Set 1.{before} or 1.{before + 1}"
        return self._effect("", refused, because)

    # Names

    def _key(self) -> str:
        """The resource's name without the cluster's: `jail`, `mount-data`, `default-0`."""
        cloud, namespace = self.config.cloud, self.config.cluster.namespace
        named = cloud.name if self.in_cloud and isinstance(cloud, NebiusCloud) else None
        return self._name().removeprefix(f"{named or namespace}-")

    def _where(self) -> str:
        """The key of the stack file that describes the volume."""
        key = self._key()
        if key in _SECTIONS:
            return _SECTIONS[key]
        return f"mounts.{key.removeprefix('mount-')}" if key.startswith("mount-") else key

    def _pool(self) -> str:
        """The worker pool of a node group; empty for our own roles."""
        match = re.fullmatch(r"(.+)-\d+", self._key())
        return match.group(1) if match else ""


def _size(resource: Recorded) -> int | None:
    """Capacity in bytes; None if nobody can tell."""
    if resource.type.startswith("kubernetes:"):
        if SIZE_ANNOTATION in ((resource.inputs.get("metadata") or {}).get("annotations") or {}):
            return None  # it lies on a file system of the cloud, which is judged for itself
        requests = resource.inputs.get("spec", {}).get("resources", {}).get("requests", {})
        quantity = requests.get("storage")
        if not isinstance(quantity, str):
            return None
        return int(quantity) if quantity.isdigit() else parse_bytes(quantity)
    found = [int(resource.inputs[name]) * unit for name, unit in _SIZES.items() if resource.inputs.get(name)]
    return found[0] if found else None


def _quantity(size: int) -> str:
    for unit, factor in (("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20)):
        if size >= factor and size % factor == 0:
            return f"{size // factor}{unit}"
    return f"{size} bytes"


def _template(group: Recorded) -> dict[str, Any]:
    return dict(group.inputs.get("template") or {})


def _version(cluster: Recorded) -> str:
    return str((cluster.inputs.get("controlPlane") or {}).get("version") or "")


def _minor(version: str) -> int | None:
    match = re.fullmatch(r"1\.(\d+)", version)
    return int(match.group(1)) if match else None
