"""What of a stack is in the cluster, and what an apply would change of it; the kinds of its apply set."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from cli.change.change import Change, differences, of_object
from cli.errors import Failure, Refused
from cli.kubectl.client import FIELD_MANAGER, OWNERS, Kubectl, as_list, message
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

APPLY = ("apply", "--server-side", "--force-conflicts", f"--field-manager={FIELD_MANAGER}")

Live = Mapping[tuple[str, str], dict[str, Any]]
"""Objects of the cluster, by kind and name."""

_OF_THE_SERVER = {"managedFields", "generation", "resourceVersion", "creationTimestamp", "uid"}
"""What the API server writes itself into an object's metadata."""


def changes(
    kubectl: Kubectl, objects: Sequence[Manifest], live: Live, left: Sequence[Mapping[str, Any]] = ()
) -> list[Change]:
    """What applying the objects would do. `live`: those that exist. `left`: what is there and no longer among them.

    The API server itself tells, by a dry run, what each object would become: so defaults are no differences, and what
    was changed by hand is one. Raises Refused in its words if it will not change one of them.
    """
    found: list[Change] = []
    outcome = _dry_run(kubectl, [manifest for manifest in objects if manifest.key in live])
    for manifest in objects:
        at = manifest.key
        resource, before = of_object(manifest.document), of_object(live[at]) if at in live else None
        if before is None:
            found.append(Change(action="create", resource=resource))
        else:
            old, new = _comparable(live[at]), _comparable(outcome[at])
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
    return {key(item): item for item in kubectl.items(",".join(KINDS), "-n", namespace, OWNERS)}


def live_objects(kubectl: Kubectl, objects: Sequence[Manifest], inside: Live) -> dict[tuple[str, str], dict[str, Any]]:
    """Those of the objects that exist. `inside`: what `objects_in` has found just now."""
    wanted = {item.key for item in objects}
    live = {at: item for at, item in inside.items() if at in wanted}
    if others := [item.document for item in objects if item.cluster_scoped or item.kind.lower() not in KINDS]:
        get = ("get", "--ignore-not-found", "-f", "-", "-o", "json", OWNERS)
        live |= {key(item): item for item in _items(kubectl.run(*get, stdin=as_list(others)).stdout)}
    return live


def _dry_run(kubectl: Kubectl, objects: Sequence[Manifest]) -> dict[tuple[str, str], dict[str, Any]]:
    """What the objects would become."""
    if not objects:
        return {}
    documents = as_list([item.document for item in objects])
    done = kubectl.run(*APPLY, "--dry-run=server", "-f", "-", "-o", "json", stdin=documents, check=False)
    if done.returncode == 0:
        return {key(item): item for item in _items(done.stdout)}
    if "immutable" in done.stderr or "Forbidden: updates to" in done.stderr:
        raise Refused(message(done.stderr), hint="set it back: it can never change, and kubectl makes nothing anew")
    raise Failure(message(done.stderr))


def _items(printed: str) -> list[dict[str, Any]]:
    if not printed.strip():
        return []
    document = json.loads(printed)
    return list(document["items"]) if document["kind"] == "List" else [document]


def _comparable(document: dict[str, Any]) -> dict[str, Any]:
    metadata = {name: value for name, value in document["metadata"].items() if name not in _OF_THE_SERVER}
    return {**document, "metadata": metadata, "status": None}


_KINDS = "applyset.kubernetes.io/contains-group-kinds"

_UNKNOWN = ("have a resource type", "could not find the requested resource")
"""In kubectl's complaint about a kind that the cluster does not know, before and after it has asked the cluster."""


def members(kubectl: Kubectl, namespace: str, parent: str, selector: str) -> list[dict[str, Any]]:
    """The set's objects of all kinds that the cluster still knows. `parent`: the Secret that stands for the set."""
    kinds = served_kinds(kubectl, namespace, parent)
    return kubectl.items(",".join(kinds), "-n", namespace, "-l", selector) if kinds else []


def served_kinds(kubectl: Kubectl, namespace: str, parent: str) -> list[str]:
    """Kinds of the set's objects, of those that the cluster still knows; none where there is no set."""
    return [kind for kind in _kinds(kubectl, namespace, parent) if _is_served(kubectl, namespace, kind)]


def forget_unknown_kinds(kubectl: Kubectl, namespace: str, parent: str) -> bool:
    """Strike kinds off that left the cluster with all their objects; kubectl prunes nothing any more because of them.

    Returns whether there were any.
    """
    kinds, served = _kinds(kubectl, namespace, parent), served_kinds(kubectl, namespace, parent)
    if served != kinds:
        kubectl.run("annotate", "secret", parent, "-n", namespace, "--overwrite", f"{_KINDS}={','.join(served)}")
    return served != kinds


def _kinds(kubectl: Kubectl, namespace: str, parent: str) -> list[str]:
    found = kubectl.items("secret", parent, "-n", namespace)
    annotations = found[0]["metadata"].get("annotations", {}) if found else {}
    return [kind for kind in annotations.get(_KINDS, "").split(",") if kind]


def _is_served(kubectl: Kubectl, namespace: str, kind: str) -> bool:
    """Whether the cluster knows a kind: Kubernetes' own always, those of others (`PodMonitor.GROUP`) may go."""
    if kind.partition(".")[0].lower() in KINDS:
        return True
    complaint = kubectl.run("get", kind, "-n", namespace, "-o", "name", check=False).stderr
    return not any(unknown in complaint for unknown in _UNKNOWN)
