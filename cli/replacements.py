"""Compares two sets of resources, before anything is touched: what would be made, changed, made anew or deleted.

The old set is either what another stack file registers, or what Pulumi's state holds. Which properties can never change
is known per type, so no cloud has to be asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cli.changes import Action, PropertyChange
from cli.recording import SIGNATURE, Recording, Secret, Unknown

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


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """One resource, from a recording or from Pulumi's state."""

    urn: str
    type: str
    name: str
    id: str
    inputs: Mapping[str, Any]
    protect: bool
    retained: bool
    """Whether Pulumi only forgets it where it would delete it."""
    sources: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """URNs of the resources that each top-level input is computed from."""
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ResourceChange:
    """What becomes of one resource."""

    action: Action
    resource: Recorded
    """As it will be; as it was, if it is deleted."""
    before: Recorded | None
    """As it was; None if it is made."""
    properties: tuple[PropertyChange, ...] = ()
    """Top-level properties that differ; of a replacement those that force it."""
    cause: str = ""
    """URN of the resource whose replacement forces this one."""


def of_recording(recording: Recording) -> list[Recorded]:
    """The resources of one run of the program that a provider manages, each after what it depends on."""
    return [
        Recorded(
            urn=item.urn,
            type=item.type,
            name=item.name,
            id=item.id,
            inputs=item.inputs,
            protect=item.protect,
            retained=item.retained,
            sources=item.sources,
            aliases=item.aliases,
        )
        for item in recording
        if item.custom and not item.type.startswith("pulumi:")
    ]


def of_export(document: Mapping[str, Any]) -> list[Recorded]:
    """The resources of a document that `pulumi stack export` printed. Secrets in it stay encrypted."""
    resources = (document.get("deployment") or {}).get("resources") or []
    return [
        Recorded(
            urn=item["urn"],
            type=item["type"],
            name=item["urn"].rsplit("::", 1)[1],
            id=item.get("id", ""),
            inputs=opaque(item.get("inputs", {})),
            protect=item.get("protect", False),
            retained=item.get("retainOnDelete", False),
        )
        for item in resources
        if item.get("custom")
        and not item["type"].startswith("pulumi:")
        # External: read, never managed. Delete: the old half of a replacement that has not come to its end.
        and not item.get("external")
        and not item.get("delete")
    ]


def opaque(value: Any) -> Any:
    """The value with each secret as a `Secret` without content, and without what providers keep for themselves."""
    if isinstance(value, dict):
        if SIGNATURE in value:
            return Secret(None)
        return {key: opaque(item) for key, item in value.items() if not key.startswith("__")}
    return [opaque(item) for item in value] if isinstance(value, list) else value


def contains_secret(value: Any) -> bool:
    """Whether there is a secret anywhere in the value."""
    if isinstance(value, Mapping):
        return any(map(contains_secret, value.values()))
    return any(map(contains_secret, value)) if isinstance(value, list) else isinstance(value, Secret)


def immutable_properties(type_: str) -> tuple[str, ...]:
    """Paths of the inputs that can never change, in the provider's spelling: `spec.storageClassName`."""
    if type_.startswith("kubernetes:"):
        return (*_PLACE, *_KUBERNETES.get(type_.rsplit(":", 1)[1], ()))
    if type_.startswith("nebius:"):
        from components.clouds.nebius.immutable import IMMUTABLE  # noqa: PLC0415  only for those who are in that cloud

        return tuple(IMMUTABLE.get(type_, ()))
    return _OTHERS.get(type_, ())


def compare(old: Sequence[Recorded], new: Sequence[Recorded]) -> list[ResourceChange]:
    """What it takes to come from the old resources to the new ones; what stays as it is, is left out.

    New resources must come after those that they depend on, so that one which is made anew takes along what can only
    be made with it (a cluster its node groups).
    """
    before = {item.urn: item for item in old}
    matched: set[str] = set()
    found: list[ResourceChange] = []
    replaced: dict[str, Recorded] = {}
    for item in new:
        was = next((before[urn] for urn in _former(item, old) if urn in before and urn not in matched), None)
        if was is None:
            found.append(ResourceChange(action="create", resource=item, before=None))
            continue
        matched.add(was.urn)
        change = _change(was, item, replaced)
        if change is not None:
            found.append(change)
            if change.action == "replace":
                replaced[item.urn] = item
    found += [ResourceChange(action="delete", resource=item, before=item) for item in old if item.urn not in matched]
    return found


def _former(item: Recorded, old: Sequence[Recorded]) -> Iterator[str]:
    """URNs under which the resource may have been known, the present one first."""
    yield item.urn
    for alias in item.aliases:
        if alias.startswith("urn:"):
            yield alias
        else:
            yield from (other.urn for other in old if other.type == item.type and other.name == alias)


def _change(was: Recorded, item: Recorded, replaced: Mapping[str, Recorded]) -> ResourceChange | None:
    forcing = tuple(
        PropertyChange(path=path, old=plain(_at(was.inputs, path)), new=plain(_at(item.inputs, path)))
        for path in immutable_properties(item.type)
        if not same(_at(was.inputs, path), _at(item.inputs, path))
    )
    if forcing:
        return ResourceChange(action="replace", resource=item, before=was, properties=forcing)
    for path in immutable_properties(item.type):
        for urn in item.sources.get(path.split(".", maxsplit=1)[0], ()):
            if urn in replaced and _holds(_at(item.inputs, path), replaced[urn].id):
                gone = PropertyChange(path=path, old=replaced[urn].id, new=None)
                return ResourceChange(action="replace", resource=item, before=was, properties=(gone,), cause=urn)
    changed = tuple(
        PropertyChange(path=name, old=plain(was.inputs.get(name)), new=plain(item.inputs.get(name)))
        for name in sorted({*was.inputs, *item.inputs})
        if not same(was.inputs.get(name), item.inputs.get(name))
    )
    return ResourceChange(action="update", resource=item, before=was, properties=changed) if changed else None


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


def same(old: Any, new: Any) -> bool:
    """Whether two values are the same, as far as anybody can tell: secret and unknown ones may be."""
    if isinstance(old, Secret | Unknown) or isinstance(new, Secret | Unknown):
        return True
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return all(same(old.get(key), new.get(key)) for key in {*old, *new})
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(same, old, new))
    return bool(old == new)


def _holds(value: Any, wanted: str) -> bool:
    if isinstance(value, Mapping):
        return any(_holds(item, wanted) for item in value.values())
    if isinstance(value, list):
        return any(_holds(item, wanted) for item in value)
    return bool(wanted) and value == wanted


def plain(value: Any) -> Any:
    """The value as it may be printed."""
    if isinstance(value, Secret):
        return "<secret>"
    if isinstance(value, Unknown):
        return "<unknown>"
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list) else value
