"""Kinds of the objects in an apply set, which its parent names: kubectl writes them there, and prunes by them."""

from __future__ import annotations

from typing import Any

from cli.errors import Failure
from cli.kubectl.client import Kubectl, nothing_served

_KINDS = "applyset.kubernetes.io/contains-group-kinds"

_UNKNOWN = ("have a resource type", "could not find the requested resource")
"""In kubectl's complaint about a kind that the cluster does not know, before and after it has asked the cluster."""


def members(kubectl: Kubectl, namespace: str, parent: str, selector: str) -> list[dict[str, Any]]:
    """The set's objects of all kinds that the cluster still knows. `parent`: the Secret that stands for the set."""
    kinds = _kinds(kubectl, namespace, parent)
    try:
        return kubectl.items(",".join(kinds), "-n", namespace, "-l", selector) if kinds else []
    except Failure:
        served = _served(kubectl, namespace, kinds)
        if served == kinds:
            raise
        return kubectl.items(",".join(served), "-n", namespace, "-l", selector) if served else []


def served_kinds(kubectl: Kubectl, namespace: str, parent: str) -> list[str]:
    """Kinds of the set's objects, of those that the cluster still knows; none where there is no set."""
    return _served(kubectl, namespace, _kinds(kubectl, namespace, parent))


def forget_unknown_kinds(kubectl: Kubectl, namespace: str, parent: str) -> bool:
    """Strike kinds off that left the cluster with all their objects; kubectl prunes nothing any more because of them.

    Returns whether there were any.
    """
    kinds = _kinds(kubectl, namespace, parent)
    served = _served(kubectl, namespace, kinds)
    if served != kinds:
        kubectl.run("annotate", "secret", parent, "-n", namespace, "--overwrite", f"{_KINDS}={','.join(served)}")
    return served != kinds


def _kinds(kubectl: Kubectl, namespace: str, parent: str) -> list[str]:
    found = kubectl.items("secret", parent, "-n", namespace)
    annotations = found[0]["metadata"].get("annotations", {}) if found else {}
    return [kind for kind in annotations.get(_KINDS, "").split(",") if kind]


def _served(kubectl: Kubectl, namespace: str, kinds: list[str]) -> list[str]:
    complaints = {kind: kubectl.run("get", kind, "-n", namespace, "-o", "name", check=False).stderr for kind in kinds}
    served = [kind for kind in kinds if not any(unknown in complaints[kind] for unknown in _UNKNOWN)]
    for kind in kinds:
        if kind not in served and "." not in kind:  # without a group: of Kubernetes' core, which is always there
            raise nothing_served(complaints[kind].strip())
    return served
