"""StatefulSets whose number of pods a program sets (login nodes by their sessions), and no apply."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cli.kubectl.client import FIELD_MANAGER
from cli.kubectl.diff import key
from cli.program.manifests import Manifest


def with_scale(manifest: Manifest, live: Mapping[tuple[str, str], Mapping[str, Any]]) -> Manifest:
    """The object with the number of pods that it has, as long as that is still ours from when we have set it.

    Without it, server-side apply would give the field up, and Kubernetes then set it to one: all other login nodes
    would end. When the program has set another number, the field is its own. `live`: with the owners of fields.
    """
    present = live.get(key(manifest.document), {})
    replicas = present.get("spec", {}).get("replicas")
    if manifest.kind != "StatefulSet" or "replicas" in manifest.document["spec"] or not _is_ours(present):
        return manifest
    spec = {**manifest.document["spec"], "replicas": replicas}
    return replace(manifest, document={**manifest.document, "spec": spec})


def _is_ours(item: Mapping[str, Any]) -> bool:
    """Whether an apply of ours has set the number of pods, and nobody has changed it since."""
    return any(
        (entry.get("manager"), entry.get("operation")) == (FIELD_MANAGER, "Apply")
        and "f:replicas" in entry.get("fieldsV1", {}).get("f:spec", {})
        for entry in item.get("metadata", {}).get("managedFields", [])
    )
