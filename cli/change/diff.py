"""What an apply would change, compared with what is in the cluster."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from cli.change.change import Change, differences, of_object
from cli.errors import Failure
from cli.kubectl.client import FIELD_MANAGER, OWNERS, Kubectl, as_list, message, nothing_served
from cli.program.manifests import Manifest

KINDS = (
    "configmap",
    "cronjob",
    "daemonset",
    "deployment",
    "job",
    "networkpolicy",
    "persistentvolumeclaim",
    "poddisruptionbudget",
    "podtemplate",
    "role",
    "rolebinding",
    "secret",
    "service",
    "serviceaccount",
    "statefulset",
)
"""What a stack has in its namespace (a test holds that these are all), as `kubectl get` takes them."""

_NOT_OURS = (
    ("metadata", "managedFields"),
    ("metadata", "generation"),
    ("metadata", "resourceVersion"),
    ("metadata", "creationTimestamp"),
    ("metadata", "uid"),
    ("status",),
)
"""What the API server writes itself."""


def changes(
    kubectl: Kubectl,
    objects: Sequence[Manifest],
    left: Sequence[Mapping[str, Any]],
    *,
    known: Mapping[tuple[str, str], dict[str, Any]] | None = None,
) -> list[Change]:
    """What applying the objects would do. `left`: those that are there and no longer among them.

    `known`: the objects that exist, where somebody has just asked for them.

    The API server itself tells, by a dry run, what each object would become: so defaults are no differences, and what
    was changed by hand is one.
    """
    live = _get(kubectl, objects) if known is None else known
    found: list[Change] = []
    existing = [manifest for manifest in objects if key(manifest.document) in live]
    outcome = _dry_run(kubectl, existing)
    for manifest in objects:
        at = key(manifest.document)
        resource, before = of_object(manifest.document), of_object(live[at]) if at in live else None
        if before is None:
            found.append(Change(action="create", resource=resource))
        elif isinstance(after := outcome.get(at, ""), str):
            found.append(Change(action="replace", resource=resource, before=before, complaint=after))
        else:
            old, new = _comparable(live[at]), _comparable(after)
            properties = tuple(differences(old, new, secret=manifest.kind == "Secret"))
            if properties:
                found.append(Change(action="update", resource=resource, before=before, properties=properties))
    gone = [of_object(document) for document in left]
    return found + [Change(action="delete", resource=resource, before=resource) for resource in gone]


def key(document: Mapping[str, Any]) -> tuple[str, str]:
    """Kind and name: unique, since all objects are in one namespace or in none."""
    return str(document["kind"]), str(document["metadata"]["name"])


def objects_in(kubectl: Kubectl, namespace: str) -> dict[tuple[str, str], dict[str, Any]]:
    """All objects of `KINDS` in a namespace, whoever made them: one request a kind, however many pools there are."""
    try:
        found = kubectl.items(",".join(KINDS), "-n", namespace, OWNERS)
    except Failure as failure:
        if "have a resource type" not in failure.message:
            raise
        raise nothing_served(failure.message) from failure  # all of these kinds are Kubernetes' own
    return {key(item): item for item in found}


def live_objects(
    kubectl: Kubectl, objects: Sequence[Manifest], inside: Mapping[tuple[str, str], dict[str, Any]]
) -> dict[tuple[str, str], dict[str, Any]]:
    """Those of the objects that exist. `inside`: what `objects_in` has found just now."""
    others = [item for item in objects if item.cluster_scoped or item.kind.lower() not in KINDS]
    wanted = {key(item.document) for item in objects}
    return {at: item for at, item in inside.items() if at in wanted} | _get(kubectl, others)


def _get(kubectl: Kubectl, objects: Sequence[Manifest]) -> dict[tuple[str, str], dict[str, Any]]:
    if not objects:
        return {}
    documents = as_list([item.document for item in objects])
    printed = kubectl.run("get", "--ignore-not-found", "-f", "-", "-o", "json", OWNERS, stdin=documents).stdout
    return {key(item): item for item in _items(printed)}


def _dry_run(kubectl: Kubectl, objects: Sequence[Manifest]) -> dict[tuple[str, str], dict[str, Any] | str]:
    """What the objects would become; of one that cannot be changed in place, what the API server says to that."""
    if not objects:
        return {}
    documents = as_list([item.document for item in objects])
    done = kubectl.run(*APPLY, "--dry-run=server", "-f", "-", "-o", "json", stdin=documents, check=False)
    if done.returncode == 0:
        return {key(item): item for item in _items(done.stdout)}
    if "immutable" not in done.stderr and "Forbidden: updates to" not in done.stderr:
        raise Failure(message(done.stderr))
    if len(objects) == 1:
        return {key(objects[0].document): message(done.stderr)}
    # kubectl prints none of the objects where one of them fails: halves lead to that one in a few steps.
    middle = len(objects) // 2
    return _dry_run(kubectl, objects[:middle]) | _dry_run(kubectl, objects[middle:])


APPLY = ("apply", "--server-side", "--force-conflicts", f"--field-manager={FIELD_MANAGER}")


def _items(printed: str) -> list[dict[str, Any]]:
    if not printed.strip():
        return []
    document = json.loads(printed)
    return list(document["items"]) if document["kind"] == "List" else [document]


def _comparable(document: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in document.items() if (name,) not in _NOT_OURS}
    kept["metadata"] = {
        name: value for name, value in document["metadata"].items() if ("metadata", name) not in _NOT_OURS
    }
    return kept
