"""Changes that lose data or surprise people: explained, or refused, before anything is touched."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from cli.errors import USAGE, Failure, Refused
from cli.manifests import Manifest
from config.base import parse_bytes
from config.cluster import ClusterConfig
from config.nebius import NebiusCloud
from slurm.health import WATCH
from slurm.names import CONFIG_MAP, CONTROLLER, SIZE_ANNOTATION

_SECTION = {
    "jail": "jail.size",
    "controller-state": "controller.storage",
    "database-data": "accounting.database.storage",
}


_STATE_CLAIM = "controller-state"


def refuse_shrinking(objects: Iterable[Manifest], live: Mapping[tuple[str, str], Mapping[str, Any]]) -> None:
    """Raise Refused if a claim would become smaller than it is."""
    for manifest in objects:
        present = (
            live.get(("PersistentVolumeClaim", manifest.name)) if manifest.kind == "PersistentVolumeClaim" else None
        )
        if present is None:
            continue
        old, new = _size(present), _size(manifest.document)
        if _bytes(new) < _bytes(old):
            raise Refused(
                f"{_section(manifest.name)}: {new} is less than the {old} that the volume has, "
                "and a volume cannot shrink",
                hint=f"set it back to {old}. To really have a smaller one: copy the data elsewhere, "
                "`slurmstack destroy`, and make the cluster anew",
            )


def _size(claim: Mapping[str, Any]) -> str:
    """Size that the stack file gave a claim; one for a file system of the cloud asks for less than that."""
    annotations = claim["metadata"].get("annotations") or {}
    return str(annotations.get(SIZE_ANNOTATION) or claim["spec"]["resources"]["requests"]["storage"])


def _section(claim: str) -> str:
    """Key in the stack file that has a claim's size."""
    if claim.startswith("mount-"):
        return f"mounts.{claim.removeprefix('mount-')}.size"
    return _SECTION.get(claim, claim)


def _bytes(quantity: str) -> int:
    return int(quantity) if quantity.isdigit() else parse_bytes(quantity)


def refuse_unreachable_images(config: ClusterConfig) -> None:
    """Raise Failure if machines in a cloud would have to run images that are only on this machine."""
    if isinstance(config.cloud, NebiusCloud) and config.images.registry is None:
        raise Failure(
            "images.registry: the cloud's machines cannot pull images that are only on this machine",
            hint="`slurmstack images build`, then `slurmstack images push --registry R --pin` writes it into the stack "
            "file (docs/images.md)",
            code=USAGE,
        )


def refuse_foreign(namespace: Mapping[str, Any] | None) -> None:
    """Raise Failure if the namespace is there but holds no cluster of ours."""
    if namespace is None:
        return
    metadata = namespace["metadata"]
    if metadata.get("labels", {}).get("app.kubernetes.io/part-of") != "slurmstack":
        raise Failure(
            f"cluster.namespace: the namespace {metadata['name']!r} is there and belongs to something else",
            hint="name another one in slurmstack:cluster; it is made, filled and deleted with the cluster",
        )


def refuse_takeover(namespace: Mapping[str, Any] | None) -> None:
    """Raise Failure if the namespace is not one that this command made: foreign, or made by the Pulumi engine."""
    refuse_foreign(namespace)
    metadata = namespace["metadata"] if namespace is not None else {}
    managers = [str(entry.get("manager", "")) for entry in metadata.get("managedFields", [])]
    if any(manager.startswith("pulumi") for manager in managers):
        raise Failure(
            f"the cluster in namespace {metadata['name']!r} was made by `pulumi up`, "
            "which keeps its keys in Pulumi's state",
            hint="use `pulumi up` (or `slurmstack up --engine pulumi`) where the pulumi command is on PATH",
        )


def refuse_other_slurm(objects: Iterable[Manifest], live: Mapping[tuple[str, str], Mapping[str, Any]]) -> None:
    """Raise Refused if a cluster with a filled jail would get another release of Slurm.

    Steps load Slurm's plugins from the jail, which is filled once: daemons of another release would not fit to it.
    """
    for manifest in objects:
        present = live.get(("StatefulSet", manifest.name)) if manifest.name == CONTROLLER else None
        if manifest.kind == "StatefulSet" and present is not None:
            old, new = release_of(present), release_of(manifest.document)
            if old and new and old != new:
                raise Refused(
                    f"slurm.version: the jail was filled with Slurm {old}, and daemons of {new} would not fit to it",
                    hint=f"set it back to {old}; changing the release of a cluster in place is not supported yet",
                )


def release_of(stateful_set: Mapping[str, Any]) -> str:
    """The Slurm release in a tag that we computed (`24.11-0f3a9c2b7d41`), else nothing."""
    image = str(stateful_set["spec"]["template"]["spec"]["containers"][0]["image"])
    match = re.search(r":(\d\d\.\d\d)-[0-9a-f]{12}$", image)
    return match.group(1) if match else ""


def refuse_other_name(objects: Iterable[Manifest], live: Mapping[tuple[str, str], Mapping[str, Any]]) -> None:
    """Raise Refused if a cluster with state would get another name.

    slurmctld keeps the name with its state, and does not start with another one ("CLUSTER NAME MISMATCH").
    """
    present = live.get(("ConfigMap", CONFIG_MAP))
    if present is None or not {("StatefulSet", CONTROLLER), ("PersistentVolumeClaim", _STATE_CLAIM)} & live.keys():
        return
    for manifest in objects:
        if manifest.kind == "ConfigMap" and manifest.name == CONFIG_MAP:
            old, new = cluster_name_of(present), cluster_name_of(manifest.document)
            if old and new and old != new:
                raise Refused(f"slurm.cluster_name: {NAME_IS_KEPT.format(old=old, new=new)}", hint=keep_name(old))


NAME_IS_KEPT = "the cluster's state is that of {old!r}, and slurmctld does not start with it as {new!r}"


def keep_name(old: str) -> str:
    """The way out where a cluster would get another name."""
    return (
        f"set it back to {old}. Another name is another cluster: make it in a namespace of its own "
        "(slurmstack:cluster), with an empty volume for the controller's state"
    )


def cluster_name_of(configuration: Mapping[str, Any]) -> str:
    """`ClusterName` in the ConfigMap of Slurm's files; empty if it is not there."""
    slurm_conf = str((configuration.get("data") or {}).get("slurm.conf", ""))
    found = re.search(r"^ClusterName=(\S+)$", slurm_conf, re.MULTILINE)
    return found.group(1) if found else ""


HEALTH_LEAVES = (
    "health is turned off: nodes that it drained stay so, and reservations of its tests stay. "
    "Resume such nodes by hand (`slurmstack status` lists them)"
)


def leaving_health(objects: Iterable[Manifest], live: Collection[tuple[str, str]]) -> list[str]:
    """A line if the health checks are in the cluster but not in the stack any more."""
    wanted = any((manifest.kind, manifest.name) == ("Deployment", WATCH) for manifest in objects)
    return [HEALTH_LEAVES] if not wanted and ("Deployment", WATCH) in live else []


def leaving_pools(objects: Iterable[Manifest], live_sets: Iterable[Mapping[str, Any]]) -> list[str]:
    """One line for each pool that is in the cluster but not in the stack any more, with what that means."""
    wanted = {manifest.name for manifest in objects if manifest.kind == "StatefulSet"}
    pools = {
        str(item["metadata"]["labels"]["slurmstack/pool"]): int(item["spec"].get("replicas", 0))
        for item in live_sets
        if "slurmstack/pool" in item["metadata"].get("labels", {})
    }
    return [
        f"pool {pool!r} leaves: its {size} nodes take no more jobs, wait for those that run, and disappear. "
        "A pool cannot be renamed: another name is another pool, with nodes of its own."
        for pool, size in sorted(pools.items())
        if pool not in wanted
    ]
