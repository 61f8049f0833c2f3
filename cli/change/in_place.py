"""Updates in place that cost somebody something, or that nothing can make."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cli.change.change import Change, PropertyChange
from cli.kubectl.client import annotations_of
from cli.program.values import Resource, same
from config.base import parse_bytes
from slurm.names import (
    CONFIG_MAP,
    CONTROLLER,
    HOMES,
    JAIL_DIR,
    JAIL_ROOTS,
    LOGIN,
    RELEASE_ANNOTATION,
    SIZE_ANNOTATION,
)

PUT_BACK = "slurmstack/put-back"
"""Annotation of a StatefulSet of slurmctld that a restore has left stopped: the backup that its state is of."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What people should know of an update."""

    because: tuple[PropertyChange, ...]
    cost: str = ""
    refused: str = ""


def _verdict(path: str, old: Any, new: Any, *, refused: str = "", cost: str = "") -> Verdict:
    """One for a single property that differs."""
    return Verdict(because=(PropertyChange(path=path, old=old, new=new),), refused=refused, cost=cost)


def _differ(old: str, new: str) -> bool:
    """Whether both are known, and are not the same."""
    return bool(old and new) and old != new


def judge(change: Change, size_key: str) -> Verdict | None:
    """None if there is nothing to say. `size_key`: the key of the stack file that has a volume's size."""
    was, will, found = change.before, change.resource, None
    match change.kind, change.name:
        case _ if was is None:
            pass
        case (("file system" | "PersistentVolumeClaim"), _):
            found = _other_kind(was, will, size_key) or _resize(was, will, size_key)
        case "node group", _:
            found = _roll(was, will)
        case "StatefulSet", name if name == LOGIN:
            releases = release_of(was.inputs), release_of(will.inputs)
            found = other_jail(*releases, jail_root_of(was.inputs), jail_root_of(will.inputs))
            found = other_homes(has_homes(was.inputs), has_homes(will.inputs)) or found
        case "StatefulSet", name if name == CONTROLLER and not is_put_back(was.inputs):
            found = other_state(release_of(was.inputs), release_of(will.inputs))
            found = _same_images(was.inputs, will.inputs) or found
        case "ConfigMap", name if name == CONFIG_MAP:
            found = other_name(cluster_name_of(was.inputs), cluster_name_of(will.inputs))
    return found


def _resize(was: Resource, will: Resource, key: str) -> Verdict | None:
    (before, old), (after, new) = map(_size, (was, will))
    is_directory = was.inputs.get("spec", {}).get("storageClassName") == ""
    if old is None or new is None or new == old or (new > old and not is_directory):
        return None
    refused = (
        f"{key}: the volume is a directory, with all the space of its disk whatever its size says, and Kubernetes "
        f"never changes that size. Set it back to {before}"
        if new > old
        else f"{key}: {after} is less than the {before} that it has, and it cannot shrink. "
        f"Set it back to {before}. To really have a smaller one: {_another_volume(was, key)}"
    )
    return _verdict("size", before, after, refused=refused)


def _another_volume(was: Resource, key: str) -> str:
    """How people come from one volume to another. `key`: one of those in the stack file that describe it.

    Never by a destroy with all data: of mounts and figures there is no backup.
    """
    if key.startswith("mounts."):
        return "add another mount, copy the data, and then remove this one"
    if was.kind == "PersistentVolumeClaim":
        return 'docs/backups.md, "Another volume", makes this one anew and leaves all other data alone'
    return "make another cluster, in a namespace of its own, and copy the data"


def _other_kind(was: Resource, will: Resource, size_key: str) -> Verdict | None:
    """A claim keeps the class that it was made with, and how many machines may mount it."""
    section, (before, after) = size_key.rpartition(".")[0], (item.inputs.get("spec", {}) for item in (was, will))
    keys = {"storageClassName": f"{section}.storage_class", "accessModes": f"{section}.access_mode"}
    for path, key in keys.items() if was.kind == "PersistentVolumeClaim" else ():
        old, new = before.get(path), after.get(path)
        if old is not None and old != new and (new is not None or _has_set(was, path)):
            shown = ", ".join(old) if isinstance(old, list) else old
            back = f"Set it back to {shown}" if old else "Remove this key"
            refused = f"{key}: the volume's {path} is {shown!r}, and that can never change. {back}"
            refused += f". To really have another one: {_another_volume(was, size_key)}"
            return _verdict(f"spec.{path}", old, new, refused=refused)
    return None


def _has_set(claim: Resource, key: str) -> bool:
    """Whether an apply has set this. Kubernetes' default is kept where nobody asks for any."""
    entries = [item for item in claim.inputs["metadata"].get("managedFields", []) if item.get("operation") == "Apply"]
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


def _roll(was: Resource, will: Resource) -> Verdict | None:
    """A node group takes another template by replacing its machines; labels and taints reach new ones only."""
    old, new = ({**(item.inputs.get("template") or {}), "version": item.inputs.get("version")} for item in (was, will))
    if all(same(old.get(name), new.get(name)) for name in {*old, *new} - {"metadata", "taints"}):
        return None
    at_once = (will.inputs.get("strategy") or {}).get("maxUnavailable") or {}
    many = at_once.get("count") or f"{at_once.get('percent', '?')} %"
    cost = f"its machines are made anew, {many} at a time: each takes no more jobs and waits for those that run"
    return Verdict(because=(), cost=cost)


def other_jail(old: str, new: str, before: str, after: str) -> Verdict | None:
    """Steps load Slurm's plugins from the jail's root, which is filled once: another release would not fit to it.

    `before`, `after`: the roots, empty for the first one. What is in one that is there already, `up` asks the volume.
    """
    if not _differ(old, new) or before != after:
        return None
    refused = (
        f"slurm.version: the {f'root {before!r}' if before else 'jail'} was filled with Slurm {old}, and daemons "
        f"of {new} would not fit to it. Set it back to {old}, or name another root, which is filled anew: "
        f"jail: {{root: slurm-{new}}}"
    )
    return _verdict("slurm.version", old, new, refused=refused)


def other_state(old: str, new: str) -> Verdict | None:
    """What slurmctld has written, a newer one converts at its start, and an older one does not read."""
    if not _differ(old, new):
        return None
    if new > old:
        cost = f"slurmdbd converts the database to Slurm {new}, slurmctld its state: only a backup takes that back"
        return _verdict("slurm.version", old, new, cost=cost)
    refused = (
        f"slurm.version: the cluster's state is that of Slurm {old}, which {new} cannot read. Set it back, or put a "
        f"backup of {new} back first (docs/upgrades.md)"
    )
    return _verdict("slurm.version", old, new, refused=refused)


def is_put_back(item: Mapping[str, Any]) -> bool:
    """Whether it is the StatefulSet of a slurmctld that is stopped since a restore, maybe of an older release."""
    return has_put_back(item) and item.get("spec", {}).get("replicas") == 0


def has_put_back(item: Mapping[str, Any]) -> bool:
    """The same, or an apply has begun to start what that restore has left, and was cut short."""
    return PUT_BACK in ((item.get("metadata") or {}).get("annotations") or {})


def root_of(pod: Mapping[str, Any]) -> str | None:
    """Name of the root that a pod's specification leads into; empty: the first one; None: it leads into none."""
    for container in pod.get("containers") or ():
        for item in container.get("volumeMounts") or ():
            if item.get("mountPath") == JAIL_DIR:
                found = re.fullmatch(rf"{re.escape(JAIL_ROOTS)}/([^/]+)/root", str(item.get("subPath") or ""))
                return found.group(1) if found else ""
    return None


def jail_root_of(stateful_set: Mapping[str, Any]) -> str:
    """The jail's root that the pods lead into; empty for the first one."""
    return root_of(stateful_set["spec"]["template"]["spec"]) or ""


def other_homes(old: bool, new: bool) -> Verdict | None:
    """Whether homes have a volume of their own. Nobody has moved them, so users would see an empty /home."""
    if old == new:
        return None
    where = {False: "in the jail's volume", True: "on a volume of their own"}
    refused = (
        f"jail.homes: homes of this cluster are {where[old]}, and pods would show users an empty /home "
        f"{where[new]}. {'Remove this key' if new else 'Put it back'}; docs/jail.md says how homes are moved"
    )
    return _verdict("jail.homes", where[old], where[new], refused=refused)


def has_homes(stateful_set: Mapping[str, Any]) -> bool:
    """Whether the pods have a volume of homes."""
    volumes = stateful_set["spec"]["template"]["spec"].get("volumes") or ()
    return any((item.get("persistentVolumeClaim") or {}).get("claimName") == HOMES for item in volumes)


def release_of(stateful_set: Mapping[str, Any]) -> str:
    """The Slurm release that is noted, or that a tag has which we computed (`24.11-0f3a9c2b7d41`), else nothing."""
    if noted := annotations_of(stateful_set).get(RELEASE_ANNOTATION):
        return str(noted)
    match = re.search(r":(\d\d\.\d\d)-[0-9a-f]{12}$", image_of(stateful_set))
    return match.group(1) if match else ""


def image_of(stateful_set: Mapping[str, Any]) -> str:
    """The image of its pods' first container."""
    return str(stateful_set["spec"]["template"]["spec"]["containers"][0]["image"])


def _same_images(was: Mapping[str, Any], will: Mapping[str, Any]) -> Verdict | None:
    """Images of another release by the digests of before: these were not pinned anew."""
    old, new = release_of(was), release_of(will)
    if not _differ(old, new) or image_of(was) != image_of(will):
        return None
    refused = (
        f"images.digests: they are those of Slurm {old}, and slurm.version is {new}: `slurmstack images build` and "
        "`slurmstack images push --pin` give those of it"
    )
    return _verdict("slurm.version", old, new, refused=refused)


def other_name(old: str, new: str) -> Verdict | None:
    """Slurmctld keeps the name with its state, and does not start with another one ("CLUSTER NAME MISMATCH")."""
    if not _differ(old, new):
        return None
    refused = (
        f"slurm.cluster_name: the cluster's state is that of {old!r}, and slurmctld does not start with it as "
        f"{new!r}; set it back to {old}. Another name is another cluster: make it in a namespace of its own "
        "(slurmstack:cluster), with an empty volume for the controller's state"
    )
    return _verdict("slurm.cluster_name", old, new, refused=refused)


def cluster_name_of(configuration: Mapping[str, Any]) -> str:
    """`ClusterName` in the ConfigMap of Slurm's files; empty if it is not there."""
    slurm_conf = str((configuration.get("data") or {}).get("slurm.conf", ""))
    found = re.search(r"^ClusterName=(\S+)$", slurm_conf, re.MULTILINE)
    return found.group(1) if found else ""
