"""Changes that lose data or surprise people: explained, or refused, before anything is touched."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from cli.errors import Failure
from cli.manifests import Manifest
from config.base import parse_bytes

_SECTION = {"jail": "jail.size", "controller-state": "controller.storage"}


def refuse_shrinking(objects: Iterable[Manifest], live: Mapping[tuple[str, str], Mapping[str, Any]]) -> None:
    """Raise Failure if a claim would become smaller than it is."""
    for manifest in objects:
        present = (
            live.get(("PersistentVolumeClaim", manifest.name)) if manifest.kind == "PersistentVolumeClaim" else None
        )
        if present is None:
            continue
        old = str(present["spec"]["resources"]["requests"]["storage"])
        new = str(manifest.document["spec"]["resources"]["requests"]["storage"])
        if _bytes(new) < _bytes(old):
            raise Failure(
                f"{_SECTION.get(manifest.name, manifest.name)}: {new} is less than the {old} that the volume has, "
                "and a volume cannot shrink",
                hint=f"set it back to {old}. To really have a smaller one: copy the data elsewhere, "
                "`slurmstack destroy`, and make the cluster anew",
            )


def _bytes(quantity: str) -> int:
    return int(quantity) if quantity.isdigit() else parse_bytes(quantity)


def refuse_takeover(namespace: Mapping[str, Any] | None) -> None:
    """Raise Failure if the cluster was made by the Pulumi engine, whose state has other keys than we would make."""
    if namespace is None:
        return
    managers = [str(entry.get("manager", "")) for entry in namespace["metadata"].get("managedFields", [])]
    if any(manager.startswith("pulumi") for manager in managers):
        raise Failure(
            f"the cluster in namespace {namespace['metadata']['name']!r} was made by `pulumi up`, "
            "which keeps its keys in Pulumi's state",
            hint="use `pulumi up` (or `slurmstack up --engine pulumi`) where the pulumi command is on PATH",
        )


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
