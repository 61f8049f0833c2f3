"""Updates in place that cost somebody something, or that nothing can make."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cli.program.resource import Resource
from cli.program.values import printable, same
from cli.safety.change import Change, PropertyChange
from config.base import parse_bytes
from slurm.names import CONFIG_MAP, CONTROLLER, SIZE_ANNOTATION

_SIZES: Mapping[str, int] = {"sizeBytes": 1, "sizeKibibytes": 2**10, "sizeMebibytes": 2**20, "sizeGibibytes": 2**30}
"""Inputs that hold a file system's size, with their units in bytes; it has one of them."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What people should know of an update."""

    because: tuple[PropertyChange, ...]
    cost: str = ""
    refused: str = ""


def judge(change: Change, size_key: str, *, has_state: bool) -> Verdict | None:
    """None if there is nothing to say. `size_key`: the key of the stack file that has a volume's size."""
    was, will, found = change.before, change.resource, None
    match change.kind, change.name:
        case _ if was is None:
            pass
        case (("file system" | "PersistentVolumeClaim"), _):
            found = _resize(_size(was), _size(will), size_key, can_grow=not _is_directory(was))
            found = _other_class(was, will, size_key) or found
        case "Kubernetes cluster", _:
            found = _upgrade(_version(was), _version(will))
        case "node group", _:
            found = _roll(was, will)
        case "StatefulSet", name if name == CONTROLLER:
            found = _other_slurm(_release(was.inputs), _release(will.inputs))
        case "ConfigMap", name if name == CONFIG_MAP and has_state:
            found = _other_name(_cluster_name(was.inputs), _cluster_name(will.inputs))
    return found


def _resize(old: int | None, new: int | None, key: str, *, can_grow: bool) -> Verdict | None:
    if old is None or new is None or new == old or (new > old and can_grow):
        return None
    because = (PropertyChange(path="size", old=_quantity(old), new=_quantity(new)),)
    if new > old:
        refused = (
            f"{key}: the volume is a directory of the local cluster, with all the space of this machine's disk "
            f"whatever its size says, and Kubernetes never changes that size. Set it back to {_quantity(old)}"
        )
        return Verdict(because=because, refused=refused)
    refused = (
        f"{key}: {_quantity(new)} is less than the {_quantity(old)} that it has, and it cannot shrink. "
        f"Set it back to {_quantity(old)}. To really have a smaller one: {_another_volume(key)}"
    )
    return Verdict(because=because, refused=refused)


def _another_volume(key: str) -> str:
    """How people come from one volume to another. `key`: one of those in the stack file that describe it."""
    if key.startswith("mounts."):
        return "add another mount, copy the data, and then remove this one"
    return "copy the data elsewhere, `slurmstack destroy`, and make the cluster anew"


def _other_class(was: Resource, will: Resource, size_key: str) -> Verdict | None:
    """A claim keeps the class that it was made with. One that has none yet may still get one."""
    old, new = (item.inputs.get("spec", {}).get("storageClassName") for item in (was, will))
    if was.kind != "PersistentVolumeClaim" or old is None or old == new or (new is None and not _has_set_class(was)):
        return None
    key = f"{size_key.rpartition('.')[0]}.storage_class"
    has = f"has the storage class {old!r}" if old else "was made for the claim, without a storage class"
    refused = (
        f"{key}: the volume {has}, and that can never change. {f'Set it back to {old}' if old else 'Remove this key'}. "
        f"To really have another one: {_another_volume(key)}"
    )
    return Verdict(because=(PropertyChange(path="spec.storageClassName", old=old, new=new),), refused=refused)


def _has_set_class(claim: Resource) -> bool:
    """Whether an apply has set the claim's class. Kubernetes' default is kept where nobody asks for any."""
    entries = [item for item in claim.inputs["metadata"].get("managedFields", []) if item.get("operation") == "Apply"]
    return any("f:storageClassName" in item.get("fieldsV1", {}).get("f:spec", {}) for item in entries)


def _is_directory(resource: Resource) -> bool:
    """Whether it is a claim without a storage class. `_size` leaves those out that lie on a cloud's file system."""
    return resource.kind == "PersistentVolumeClaim" and resource.inputs.get("spec", {}).get("storageClassName") == ""


def _size(resource: Resource) -> int | None:
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


def _upgrade(old: str, new: str) -> Verdict | None:
    before, after = _minor(old), _minor(new)
    if before is None or after is None or after in {before, before + 1}:
        return None
    direction = "back" if after < before else "by more than one minor version"
    return Verdict(
        because=(PropertyChange(path="controlPlane.version", old=old, new=new),),
        refused=f"cloud.kubernetes.version: Kubernetes cannot go {direction}. Set 1.{before} or 1.{before + 1}",
    )


def _version(cluster: Resource) -> str:
    return str((cluster.inputs.get("controlPlane") or {}).get("version") or "")


def _minor(version: str) -> int | None:
    match = re.fullmatch(r"1\.(\d+)", version)
    return int(match.group(1)) if match else None


def _roll(was: Resource, will: Resource) -> Verdict | None:
    """A node group takes another template by replacing its machines; labels and taints reach new ones only."""
    old, new = ({**(item.inputs.get("template") or {}), "version": item.inputs.get("version")} for item in (was, will))
    because = tuple(
        PropertyChange(
            path=f"template.{name}" if name != "version" else name,
            old=printable(old.get(name)),
            new=printable(new.get(name)),
        )
        for name in sorted({*old, *new} - {"metadata", "taints"})
        if not same(old.get(name), new.get(name))
    )
    if not because:
        return None
    at_once = (will.inputs.get("strategy") or {}).get("maxUnavailable") or {}
    many = at_once.get("count") or f"{at_once.get('percent', '?')} %"
    cost = f"its machines are made anew, {many} at a time: each takes no more jobs and waits for those that run"
    return Verdict(because=because, cost=cost)


def _other_slurm(old: str, new: str) -> Verdict | None:
    """Steps load Slurm's plugins from the jail, which is filled once: another release would not fit to it."""
    if not old or not new or old == new:
        return None
    return Verdict(
        because=(PropertyChange(path="slurm.version", old=old, new=new),),
        refused=f"slurm.version: the jail was filled with Slurm {old}, and daemons of {new} would not fit to it. Set "
        f"it back to {old}; changing the release of a cluster in place is not supported yet",
    )


def _release(stateful_set: Mapping[str, Any]) -> str:
    """The Slurm release in a tag that we computed (`24.11-0f3a9c2b7d41`), else nothing."""
    image = str(stateful_set["spec"]["template"]["spec"]["containers"][0]["image"])
    match = re.search(r":(\d\d\.\d\d)-[0-9a-f]{12}$", image)
    return match.group(1) if match else ""


def _other_name(old: str, new: str) -> Verdict | None:
    """Slurmctld keeps the name with its state, and does not start with another one ("CLUSTER NAME MISMATCH")."""
    if not old or not new or old == new:
        return None
    return Verdict(
        because=(PropertyChange(path="slurm.cluster_name", old=old, new=new),),
        refused=f"slurm.cluster_name: the cluster's state is that of {old!r}, and slurmctld does not start with it as "
        f"{new!r}; set it back to {old}. Another name is another cluster: make it in a namespace of its own "
        "(slurmstack:cluster), with an empty volume for the controller's state",
    )


def _cluster_name(configuration: Mapping[str, Any]) -> str:
    """`ClusterName` in the ConfigMap of Slurm's files; empty if it is not there."""
    slurm_conf = str((configuration.get("data") or {}).get("slurm.conf", ""))
    found = re.search(r"^ClusterName=(\S+)$", slurm_conf, re.MULTILINE)
    return found.group(1) if found else ""
