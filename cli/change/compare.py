"""What it takes to come from one set of resources to another, before anything is touched.

The old set is either what another stack file registers, or what Pulumi's state holds. Which properties can never change
is known per type, so no cloud and no engine has to be asked: the engine takes five seconds for that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cli.change.change import Change, PropertyChange, differences
from cli.program.values import Resource, Secret, Unknown, leaves, printable, same

_PLACE = ("metadata.name", "metadata.namespace")

_KUBERNETES: Mapping[str, tuple[str, ...]] = {
    "StatefulSet": (
        "spec.selector",
        "spec.serviceName",
        "spec.podManagementPolicy",
        "spec.revisionHistoryLimit",
        "spec.volumeClaimTemplates",
    ),
    "DaemonSet": ("spec.selector",),
    "Deployment": ("spec.selector",),
    "Job": ("spec.selector", "spec.template", "spec.completions", "spec.completionMode"),
    "PersistentVolumeClaim": (
        "spec.accessModes",
        "spec.selector",
        "spec.storageClassName",
        "spec.volumeMode",
        "spec.volumeName",
    ),
    "PersistentVolume": ("spec.csi", "spec.hostPath", "spec.local", "spec.nfs", "spec.volumeMode", "spec.nodeAffinity"),
    "Secret": ("type",),
    "Service": ("spec.clusterIP",),
    "RoleBinding": ("roleRef",),
    "ClusterRoleBinding": ("roleRef",),
    "StorageClass": ("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"),
}
"""Properties whose change makes Pulumi's Kubernetes provider delete the object and make it anew, as it lists them."""

_OTHERS: Mapping[str, tuple[str, ...]] = {"random:index/randomBytes:RandomBytes": ("length", "keepers")}


def immutable_properties(type_: str) -> tuple[str, ...]:
    """Paths of the inputs that can never change, in the provider's spelling: `spec.storageClassName`."""
    if type_.startswith("kubernetes:"):
        return (*_PLACE, *_KUBERNETES.get(type_.rsplit(":", 1)[1], ()))
    if type_.startswith("nebius:"):
        from components.clouds.nebius.immutable import IMMUTABLE  # noqa: PLC0415  only for those who are in that cloud

        return tuple(IMMUTABLE.get(type_, ()))
    return _OTHERS.get(type_, ())


def compare(old: Sequence[Resource], new: Sequence[Resource]) -> list[Change]:
    """The changes; what stays as it is, is left out.

    New resources must come after those that they depend on, so that one which is made anew takes along what can only
    be made with it (a cluster its node groups).
    """
    before = {item.urn: item for item in old}
    matched: set[str] = set()
    found: list[Change] = []
    replaced: dict[str, Resource] = {}
    for item in new:
        was = next((before[urn] for urn in _former(item, old) if urn in before and urn not in matched), None)
        if was is None:
            found.append(Change(action="create", resource=item))
            continue
        matched.add(was.urn)
        change = _change(was, item, replaced)
        if change is not None:
            found.append(change)
            if change.action == "replace":
                replaced[item.urn] = item
    return found + [Change(action="delete", resource=item, before=item) for item in old if item.urn not in matched]


def _former(item: Resource, old: Sequence[Resource]) -> Iterator[str]:
    """URNs under which the resource may have been known, the present one first."""
    yield item.urn
    for alias in item.aliases:
        if alias.startswith("urn:"):
            yield alias
        else:
            yield from (other.urn for other in old if other.type == item.type and other.name == alias)


def _change(was: Resource, item: Resource, replaced: Mapping[str, Resource]) -> Change | None:
    because, cause = _forced(was, item), ""
    if not because:
        because, cause = _forced_by_another(item, replaced)
    properties = tuple(differences(was.inputs, item.inputs, secret=item.kind == "Secret"))
    if not because and not properties:
        return None
    return Change(
        action="replace" if because else "update",
        resource=item,
        before=was,
        properties=properties,
        because=because,
        cause=cause,
    )


def _forced(was: Resource, item: Resource) -> tuple[PropertyChange, ...]:
    pairs = ((path, _at(was.inputs, path), _at(item.inputs, path)) for path in immutable_properties(item.type))
    return tuple(
        PropertyChange(path=path, old=printable(old), new=printable(new))
        for path, old, new in pairs
        if not same(old, new)
    )


def _forced_by_another(item: Resource, replaced: Mapping[str, Resource]) -> tuple[tuple[PropertyChange, ...], str]:
    """The property that is the id of a resource which is made anew, and that resource's URN."""
    for path in immutable_properties(item.type):
        for urn in item.sources.get(path.split(".", maxsplit=1)[0], ()):
            id_ = replaced[urn].id if urn in replaced else ""
            if id_ and any(leaf == id_ for _, leaf in leaves(_at(item.inputs, path))):
                return (PropertyChange(path=path, old=id_, new=None),), urn
    return (), ""


def _at(value: Any, path: str) -> Any:
    """What lies at a dotted path; of a list, what lies there in each element."""
    for part in path.split("."):
        if isinstance(value, Secret | Unknown):
            return value
        if isinstance(value, list):
            value = [item.get(part) if isinstance(item, Mapping) else None for item in value]
        else:
            value = value.get(part) if isinstance(value, Mapping) else None
    return value
