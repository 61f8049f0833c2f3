"""What Kubernetes says: pods, what makes them, which images they run, and who applied that last."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cli.kubectl.client import FIELD_MANAGER

LEAVING = "Leaving"
"""Phase of a pod that was deleted and has not ended yet."""


@dataclass(frozen=True, kw_only=True)
class Pod:
    """One pod."""

    name: str
    phase: str
    ready: bool
    restarts: int
    node: str
    component: str = ""
    """`controller`, `worker`, `login`, ...; empty if its labels say nothing."""


@dataclass(frozen=True, kw_only=True)
class Apply:
    """The last apply that has changed something."""

    time: str
    """`2026-11-25T19:24:05Z`."""
    engine: str
    """`kubectl` or `pulumi`; for another tool its name as Kubernetes knows it."""


def pod_of(item: Mapping[str, Any]) -> Pod:
    """A pod as Kubernetes has it."""
    status = item.get("status", {})
    containers = status.get("containerStatuses", [])
    leaving = "deletionTimestamp" in item["metadata"]
    return Pod(
        name=item["metadata"]["name"],
        phase=LEAVING if leaving else status.get("phase", "Unknown"),
        ready=bool(containers) and all(container["ready"] for container in containers),
        restarts=sum(container["restartCount"] for container in containers),
        node=item["spec"].get("nodeName", ""),
        component=(item["metadata"].get("labels") or {}).get("app.kubernetes.io/component", ""),
    )


def image_tags(items: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """The tags, or the begin of the digests, of our images that pods run: several while they are replaced."""
    images = {
        container.get("image", "")
        for item in items
        for container in item["spec"].get("containers", [])
        if "slurmstack" in container.get("image", "")
    }
    return tuple(sorted({_tag(image) for image in images}))


def _tag(image: str) -> str:
    name, _, digest = image.partition("@")
    _, _, tag = name.rpartition("/")[2].partition(":")
    return tag or digest[:19] or "latest"


def last_apply(items: Iterable[Mapping[str, Any]]) -> Apply | None:
    """The last one that has changed one of these objects, which kubectl has shown with the owners of their fields."""
    found = [
        Apply(time=str(entry["time"]), engine="kubectl" if manager == FIELD_MANAGER else manager.partition("-")[0])
        for item in items
        for entry in item["metadata"].get("managedFields", [])
        if (manager := str(entry.get("manager", "")))
        and "time" in entry
        and not entry.get("subresource")
        and (entry.get("operation") == "Apply" or manager.startswith("pulumi"))
    ]
    return max(found, key=lambda apply: apply.time, default=None)
